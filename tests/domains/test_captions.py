"""Captions in every format say the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.domains.captions import captions_of, clock
from recollect.domains.passages import indexed, passages_of

SRT = (
    "1\r\n00:00:05,000 --> 00:00:10,000\r\nA man <i>enters</i>.\r\n\r\n"
    "2\r\n01:00:00,500 --> 01:00:02,000\r\nHe sits.\r\n"
)
VTT = (
    "WEBVTT - a film\n\nNOTE x\n\nfirst\n00:05.000 --> 00:10.000 align:start\nA man enters.\n\n"
    "01:00:00.500 --> 01:00:02.000\nHe sits."
)
FORMS = {
    "srt": SRT,
    "vtt": VTT,
    "txt": "[0:05] A man enters.\n1:00:00 - He sits.",
    "list": '[{"start": 5, "end": 10, "text": "A man enters."}, {"start": "1:00:00", "text": "He sits."}]',
    "segments": '{"video": "x", "segments": [{"timestamp": [5.2, 9], "caption": "A man enters."},'
    ' {"start_time": 3600, "text": "He sits."}]}',
    "moments": '{"0:05": "A man enters.", "1:00:00": "He sits."}',
    "mark": "\ufeff" + SRT,
}


@pytest.mark.parametrize("form", FORMS)
def test_formats_agree(form: str) -> None:
    assert [str(c) for c in captions_of(FORMS[form])] == ["0:05 A man enters.", "1:00:00 He sits."]


def test_plain_lines_and_broken_json_are_text() -> None:
    assert [str(c) for c in captions_of("one\n\ntwo")] == ["one", "two"]
    assert [str(c) for c in captions_of('{"text": ')] == ['{"text":']
    assert captions_of("") == []


@given(st.text())
def test_no_text_is_refused(text: str) -> None:
    for caption in captions_of(text):
        assert caption.text


@given(st.integers(0, 10**6))
def test_a_time_is_read_back(seconds: int) -> None:
    assert captions_of(f"{clock(seconds)} x")[0].start == seconds


def test_passages_and_their_ranks() -> None:
    assert passages_of("a b\nc d") == ["a b", "c d"]
    assert passages_of("a\nb\n\nc") == ["a\nb", "c"]
    assert passages_of("One. Two! Three") == ["One.", "Two!", "Three"]
    found = indexed("mira trusts kolu.\nkolu holds 1.\nbano holds 2.")
    assert [found.texts[i] for i in found.search("kolu holds", 2, "bm25")] == ["kolu holds 1.", "mira trusts kolu."]
    assert found.search("nothing", 3, "bm25") == []
