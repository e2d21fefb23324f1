"""Texts that begin alike are tokenised as if each were alone."""

from __future__ import annotations

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.chat.encoder import SHORT, Encoder
from recollect.chat.known_texts import common_start
from tests.chat.backends import NAMES, Counting, backend, ids_of

WORDS = st.lists(
    st.text(string.ascii_letters + string.digits + ".,é漢\u200d\n'", min_size=1, max_size=9), min_size=1, max_size=40
)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20, deadline=None)
@given(start=WORDS, tails=st.lists(WORDS, min_size=2, max_size=4), glue=st.sampled_from([" ", "", "\n"]))
def test_ids_are_those_of_the_backend(name: str, start: list[str], tails: list[list[str]], glue: str) -> None:
    beginning = (" ".join(start) + " ") * (1 + 2 * SHORT // (1 + sum(map(len, start))))
    alone, together = Encoder(core := backend(name)), Encoder(core)
    texts = [beginning + glue + glue.join(tail) for tail in tails]
    expected = [ids_of(core, text) for text in texts]
    assert [alone.encode(text) for text in texts] == expected
    assert together.encode_all(texts) == expected
    assert together.encode_all(texts[::-1]) == expected[::-1]


def test_a_known_beginning_is_not_tokenised_again() -> None:
    encoder = Encoder(core := Counting(backend("tiny")))
    section = "mira holds 472. kolu holds 118. " * 300
    asked = []
    for memory in ("none", "mira holds 472", "kolu holds 118"):
        core.asked = 0
        encoder.encode(section + "Memory: " + memory)
        asked.append(core.asked)
    assert asked[0] > len(section)
    assert max(asked[1:]) < 1000


@given(st.text("ab", max_size=50), st.text("ab", max_size=50))
def test_common_start(a: str, b: str) -> None:
    n = common_start(a, b)
    assert a[:n] == b[:n]
    assert n == min(len(a), len(b)) or a[n] != b[n]
