"""Documents in sections: nothing lost, nothing repeated, never too long, whatever the text."""

from __future__ import annotations

import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from recollect.agents.session import token_offsets
from recollect.chat.tokens import Tokens
from recollect.data import documents
from recollect.data.documents import PIECE, TextFile, ahead, centre_cut, is_long, open_document, sections
from recollect.types import BadInput
from tests.chat.backends import NAMES, backend

SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=[*HealthCheck])
ALPHABET = [*"abmi .!?\"')0129", "\n", "\r\n", "\r", "\t", "\x00", "\u2028", "\ufeff", "\xa0"]
ALPHABET += [
    "é",
    "e\u0301",
    "ñ",
    "漢",
    "字",
    "。",
    "😀",
    "👩\u200d👩\u200d👧",
    "\u0301",
    "ﷺ",
    "<|end|>",
    " mira holds 472.",
]
TEXT = st.one_of(st.lists(st.sampled_from(ALPHABET), max_size=120).map("".join), st.text(max_size=150))
SPLIT = st.sampled_from(["token", "sentence"])


@pytest.fixture(scope="module")
def offsets(tokenizer: Any) -> Callable[[str], np.ndarray]:
    return lambda text: token_offsets(tokenizer, text)


@pytest.fixture(params=[1 << 16, 64, 7], ids=lambda p: f"piece{p}")
def piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(documents, "PIECE", request.param)
    return int(request.param)


def assert_sections(text: str, parts: list[str], offsets: Callable[[str], np.ndarray], size: int) -> None:
    joined = "".join(parts)
    assert text.startswith(joined)
    assert text[len(joined) :].strip() == ""  # a tail of nothing but white space may go
    for part in parts:
        assert part
        if len(part) > 1:  # a single character may be made of more tokens than a section holds
            assert len(offsets(part)) <= size


@SETTINGS
@given(text=TEXT, size=st.integers(1, 40), split=SPLIT)
def test_sections_are_the_text_and_fit(
    text: str, size: int, split: str, piece: int, offsets: Callable[[str], np.ndarray]
) -> None:
    assert_sections(text, list(sections(text, offsets, size, split)), offsets, size)


@pytest.mark.parametrize("split", ["token", "sentence"])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "   \n\n ",
        "x",
        "\x00" * 100,
        "mirakolu" * 60,
        "漢字" * 80,
        "😀" * 50,
        "e\u0301" * 90,
        "one two.\r\n" * 30,
        "a" * 63 + "\r\n" + "b" * 63 + "😀" + "c" * 200,
    ],
    ids=lambda t: ascii(t[:8]),
)
def test_texts_of_every_kind(
    text: str, split: str, piece: int, offsets: Callable[[str], np.ndarray], tmp_path: Path
) -> None:
    for size in (1, 3, 16):
        parts = list(sections(text, offsets, size, split))
        assert_sections(text, parts, offsets, size)
        assert parts or not text.strip()
    path = tmp_path / "text.txt"  # the same through a file, whose pieces are cut by bytes and not by characters
    path.write_bytes(text.encode())
    assert_sections(text, list(sections(TextFile(path), offsets, 16, split)), offsets, 16)


@pytest.mark.parametrize("name", NAMES)
@settings(SETTINGS, max_examples=25)
@given(text=TEXT, size=st.integers(1, 40), split=SPLIT)
def test_sections_are_those_of_all_offsets(name: str, text: str, size: int, split: str, piece: int) -> None:
    """Tokens say where they stand one by one; an array of all of them cuts the same."""
    core = backend(name)
    text = text.encode("utf-8", "replace").decode()
    lazy = lambda part: Tokens(core, part)
    whole = lambda part: np.array(core.encode(part, add_special_tokens=False).offsets, np.int64).reshape(-1, 2)
    assert [tuple(span) for span in whole(text)] == [lazy(text)[i] for i in range(len(lazy(text)))]
    told: list[str] = []
    learn = lambda tokens, start, stop: told.append(tokens.text[start:stop])
    assert list(sections(text, lazy, size, split, learn)) == list(sections(text, whole, size, split)) == told


def test_padding_stands_nowhere() -> None:
    core = Tokenizer.from_str(backend("words").to_str())
    core.enable_padding(length=4)
    assert [Tokens(core, "mira holds")[i] for i in range(4)] == core.encode("mira holds").offsets


def test_a_character_of_more_tokens_than_a_section_is_one_section(offsets: Callable[[str], np.ndarray]) -> None:
    assert len(offsets("😀")) == 4
    assert list(sections("a😀b", offsets, 2)) == ["a", "😀", "b"]


def test_token_sections_are_as_long_as_they_may_be(offsets: Callable[[str], np.ndarray]) -> None:
    text = "mira holds 472. " * 200
    lengths = [len(offsets(part)) for part in sections(text, offsets, 48)]
    assert set(lengths[:-1]) == {48}


WORDS = st.lists(st.sampled_from(["mira", "kolu", "holds", "472", "é", "漢字", "x.y"]), min_size=1, max_size=6)
SENTENCE = st.tuples(WORDS.map(" ".join), st.sampled_from([".", "!", "?", '."', ".')", "。", "…"])).map("".join)


@SETTINGS
@given(parts=st.lists(SENTENCE, min_size=1, max_size=25), size=st.integers(4, 40), gap=st.sampled_from([" ", "\n"]))
def test_sentences_that_fit_are_never_cut(
    parts: list[str], size: int, gap: str, piece: int, offsets: Callable[[str], np.ndarray]
) -> None:
    text = gap.join(parts)
    cuts, place = set(), 0
    for part in sections(text, offsets, size, "sentence"):
        place += len(part)
        cuts.add(place)
    start, quoted = 0, False
    for sentence in parts:
        end = start + len(sentence)
        reach = len(offsets(text[max(0, start - 1) : end]))  # with the gap before it, which its section may hold
        inside = [c for c in cuts if start < c < end]
        assert reach > size or inside == [] or quoted, (sentence, inside)
        quoted = reach > size and sentence[-1] in "\"')"  # its end may be cut in two, see the next test
        start = end + len(gap)


def test_a_sentence_after_a_cut_closing_quote_is_whole(
    offsets: Callable[[str], np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The full stop was the last token of a section, and of what was read so far; its quotes begin the next one."""
    text = "mira mira mira mira mira mira. mira holds.') mira."
    whole = list(sections(text, offsets, 4, "sentence"))
    assert whole[-1] == " mira."
    monkeypatch.setattr(documents, "PIECE", 7)
    assert list(sections(text, offsets, 4, "sentence"))[-1] == " mira."


def test_sentence_sections_end_where_sentences_do(offsets: Callable[[str], np.ndarray]) -> None:
    text = " ".join(f"mira holds {i:03d}." for i in range(100))
    parts = list(sections(text, offsets, 48, "sentence"))
    assert all(p.endswith(".") for p in parts)
    assert all(len(offsets(p)) > 48 - 2 * 7 for p in parts[:-1])


def byte_level_bpe(trim: bool) -> Any:
    """A tokenizer like Qwen's and Llama 3's: tokens such as ".\\n" and "\\n\\n", offsets with or without the space."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    words = Regex(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(words, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    core.post_processor = processors.ByteLevel(trim_offsets=trim)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    core.train_from_iterator(["mira holds\n\n it.\n\nkolu holds it.\n mira!\n\n"] * 50, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=core)


@pytest.mark.parametrize("split", ["token", "sentence"])
@pytest.mark.parametrize("trim", [False, True], ids=["whole_offsets", "trimmed_offsets"])
def test_sections_fit_for_tokenizers_of_larger_models(split: str, trim: bool) -> None:
    bpe = byte_level_bpe(trim)
    offsets = lambda text: token_offsets(bpe, text)
    assert [len(offsets(t)) for t in (".\n", "\n\n", " holds")] == [1, 1, 1]
    text = "mira holds it.\n\nkolu holds it.\nmira holds\n\nkolu! it holds mira.\n\n\n" * 4
    text += ("mira holds it.\n" + "kolu holds mira " * 12 + "it.\n\n" + "mira holds kolu it " * 12 + "\n\n") * 2
    for size in range(1, 24):
        assert_sections(text, list(sections(text, offsets, size, split)), offsets, size)


def test_long_runs_of_blank_lines_take_no_longer_than_text(offsets: Callable[[str], np.ndarray]) -> None:
    text = "\n" * 40_000 + "mira holds 472."
    start = time.process_time()
    assert_sections(text, list(sections(text, offsets, 5000, "sentence")), offsets, 5000)
    assert time.process_time() - start < 1


@given(count=st.integers(0, 12), most=st.integers(0, 9))
def test_centre_cut_keeps_both_ends(count: int, most: int) -> None:
    parts = [str(i) for i in range(count)]
    kept = list(centre_cut(parts, most))
    if most == 0 or count <= most:
        assert kept == parts
    else:
        assert len(kept) == most
        assert kept == parts[: (most + 1) // 2] + parts[count - most // 2 :]


def test_centre_cut_yields_the_beginning_before_the_end_is_read() -> None:
    def endless() -> Iterator[str]:
        while True:
            yield "x"

    cut = centre_cut(endless(), 4)
    assert [next(cut), next(cut)] == ["x", "x"]


def test_bytes_that_are_not_utf8_become_the_replacement_character(
    piece: int, offsets: Callable[[str], np.ndarray], tmp_path: Path
) -> None:
    data = b"caf\xe9 \xff\xfe mira\x80 " * 10 + "漢".encode()[:2]
    path = tmp_path / "latin.txt"
    path.write_bytes(data)
    text = "".join(TextFile(path).pieces())
    assert text == data.decode("utf-8", "replace")
    assert "\ufffd" in text
    assert_sections(text, list(sections(TextFile(path), offsets, 9)), offsets, 9)


def test_documents_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    (tmp_path / "good.txt").write_text("text")
    for name, words in (("nothing.txt", "no document"), ("", "not a file"), ("empty.txt", "is empty")):
        with pytest.raises(BadInput, match=words):
            open_document(tmp_path / name)
    assert "".join(open_document(str(tmp_path / "good.txt")).pieces()) == "text"


@pytest.mark.parametrize("real", [False, True], ids=["10MB", "1MB_real_tokens"])
def test_a_large_file_is_streamed_in_bounded_memory(
    real: bool, tmp_path: Path, offsets: Callable[[str], np.ndarray]
) -> None:
    def every_four_characters(text: str) -> np.ndarray:
        starts = np.arange(0, len(text), 4)
        return np.stack([starts, np.minimum(starts + 4, len(text))], 1)

    line = b"What matters is the total number of notes that they read and update, and the one who was called. "
    path = tmp_path / "large.txt"
    path.write_bytes(line * ((1_000_000 if real else 10_000_000) // len(line)))
    size = path.stat().st_size
    seen = 0
    tracemalloc.start()
    try:
        for part in sections(TextFile(path), offsets if real else every_four_characters, 5000):
            seen += len(part)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert seen >= size - 1
    assert peak < (60e6 if real else 5e6)


def test_reading_ahead_changes_nothing() -> None:
    assert list(ahead(range(20))) == list(range(20))
    assert list(ahead([])) == []


def test_the_next_part_is_made_while_one_is_worked_on() -> None:
    made = [threading.Event() for _ in range(3)]

    def parts() -> Iterator[int]:
        for i, event in enumerate(made):
            event.set()
            yield i

    reading = ahead(parts())
    assert next(reading) == 0
    assert made[1].wait(60)
    assert not made[2].wait(0.05)  # one ahead, not more
    assert list(reading) == [1, 2]


def test_what_goes_wrong_ahead_is_raised_in_its_place() -> None:
    def parts() -> Iterator[int]:
        yield 1
        raise BadInput("no more")

    reading = ahead(parts())
    assert next(reading) == 1
    with pytest.raises(BadInput, match="no more"):
        next(reading)


def test_reading_ahead_can_be_given_up() -> None:
    reading = ahead(iter(range(1000)))
    assert next(reading) == 0
    reading.close()  # type: ignore[attr-defined]
    assert list(ahead(range(3))) == [0, 1, 2]


@pytest.mark.parametrize(
    ("context", "long"), [("a" * PIECE, False), ("a" * (PIECE + 1), True), (TextFile(Path()), True)]
)
def test_short_documents_are_read_at_once(context: Any, long: bool) -> None:
    assert is_long(context) is long
