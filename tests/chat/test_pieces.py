"""Texts with a known piece are tokenised as if nothing were known of them."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from recollect.agents.session import Binding, Session
from recollect.chat import Renderer
from recollect.chat.encoder import Encoder
from recollect.chat.pieces import LONG, PIECES, KnownPieces
from recollect.chat.tokens import Tokens
from recollect.models.load import load_tokenizer
from recollect.types import Message, Sampling, Task, Trajectory
from tests.chat.backends import NAMES, Counting, backend, ids_of

SETTINGS = settings(max_examples=25, deadline=None)
ATOMS = [
    *"abAé漢1.,'\"!()-",
    "12",
    "472",
    "it's",
    "'ve",
    "mira",
    "Kolu",
    "holds",
    "naïve",
    "字",
    "😀",
    "e\u0301",
    "<|end|>",
]
ATOMS += [*" \n\t\r\xa0\u3000\u200d", "\r\n", "\n\n", "  ", " .\n", ". ", "。\n", " \u0301", "'s\n", ".\n\n"]
ENDS = st.lists(st.sampled_from(ATOMS), max_size=30).map("".join)


def text_of(seed: int, length: int, blanks: float = 0.5) -> str:
    """So many characters of everything."""
    rng, out = random.Random(seed), ""
    while len(out) < length:
        out += rng.choice(ATOMS) + (" " if rng.random() < blanks else "")
    return out[:length]


@pytest.mark.parametrize("name", NAMES)
@SETTINGS
@given(
    seed=st.integers(0, 10**6),
    place=st.integers(0, 5000),
    length=st.integers(LONG, 6000),
    blanks=st.sampled_from([0.0, 0.1, 0.5]),
    around=st.lists(st.tuples(ENDS, ENDS), min_size=1, max_size=3),
    twice=st.booleans(),
)
def test_ids_are_those_of_the_backend(
    name: str, seed: int, place: int, length: int, blanks: float, around: list[tuple[str, str]], twice: bool
) -> None:
    core = backend(name)
    document = text_of(seed, 12_000, blanks)
    encoder, tokens = Encoder(core), Tokens(core, document)
    for start in (place, place + 1000):  # pieces that overlap
        encoder.pieces.learn(tokens, start, start + length)
    section = document[place : place + length].strip()
    for before, after in around:
        text = before + section + after + (section + before if twice else "")
        assert encoder.encode(text) == ids_of(core, text)


@pytest.mark.parametrize("name", NAMES)
def test_pieces_next_to_everything(name: str) -> None:
    core = backend(name)
    piece = "12 mira holds 472. it's Kolu, naïve 漢字 été and 118.\n\nThe names hold " * 60 + "12"
    document = "1" + piece + "3 Kolu." + piece + "'s"
    encoder, tokens = Encoder(core), Tokens(core, document)
    for start in (1, document.rindex(piece)):
        encoder.pieces.learn(tokens, start, start + len(piece))
    for glue in [
        "",
        " ",
        "  ",
        "\n",
        "\n\n",
        "'",
        "'s",
        "1",
        "9",
        ".",
        "a",
        "é",
        "\u0301",
        "漢",
        "<|end|>",
        "\t",
        " \n ",
    ]:
        for text in (glue + piece + glue, "Section: " + glue + piece + glue + "Memory: 5", glue + piece[1:] + glue):
            assert encoder.encode(text) == ids_of(core, text), (glue, text[:20])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "text", ["漢字" * 3000, "mira" * 2000, "12" * 3000, "a" + " " * 5000 + "b", "mira " * 60 + "x" * 5000]
)
def test_pieces_without_a_blank_to_cut_at(name: str, text: str) -> None:
    encoder, core = Encoder(backend(name)), backend(name)
    encoder.pieces.learn(Tokens(core, text), 0, len(text))
    assert encoder.encode(text + "1") == ids_of(core, text + "1")


def test_splits_of_equal_score_are_those_of_the_whole_text() -> None:
    core = Tokenizer(models.Unigram([("<unk>", -20.0), ("▁", -2.1), ("▁▁", -3.17), ("m", -3.3)], unk_id=0))
    core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
    document = "m   " * 3000  # three blanks are one and two, or two and one, as the sum of all before them rounds
    encoder = Encoder(core)
    encoder.pieces.learn(Tokens(core, document), 0, 6000)
    for before in ("", "m", "mm ", "m m."):
        text = before + document[:6000]
        assert encoder.encode(text) == ids_of(core, text)


@pytest.mark.parametrize("name", NAMES)
def test_a_known_piece_is_not_tokenised_again(name: str) -> None:
    core = Counting(backend(name))
    document = "mira holds 472. it's Kolu, who holds many names.\nThe memory of 118 documents (small). " * 300
    encoder = Encoder(core)
    tokens = Tokens(core, document)
    encoder.pieces.learn(tokens, 5000, 20_000)
    core.asked, section = 0, document[5000:20_000].strip()
    for memory in ("none", "mira holds 472", "1 2 3"):
        encoder.encode(f"Memory: {memory}\nSection:\n{section}\n\nRewrite the memory.")
    whole = name in ("llama2", "metaspace_unsplit")  # one marks whatever it is given, one weighs all of a text
    assert core.asked > 3 * len(section) if whole else core.asked < 6000


def test_many_pieces_are_told_apart_and_few_remembered() -> None:
    core, pieces = backend("qwen"), KnownPieces()
    texts = [f"{i} " + text_of(i, 3000) for i in range(PIECES + 10)]
    for text in texts:
        pieces.learn(Tokens(core, text), 0, len(text))
    found = [pieces.find("Section: " + text.strip() + " end") for text in texts]
    assert [f is not None for f in found] == [False] * 10 + [True] * PIECES
    assert all(f[1] == 9 and f[0].text == t.strip() for f, t in zip(found, texts, strict=True) if f is not None)


def test_learning_again_costs_nothing() -> None:
    core, pieces = Counting(backend("qwen")), KnownPieces()
    document = "mira holds 472. " * 1000
    pieces.learn(Tokens(core, document), 0, 9000)
    asked = core.asked
    pieces.learn(Tokens(core, document), 0, 9000)  # the next attempt's, of which nothing is asked
    pieces.learn(Tokens(core, document), 0, 1000)  # too short to be worth it
    assert core.asked == asked == len(document)


def test_the_longest_piece_is_taken() -> None:
    core, pieces = backend("qwen"), KnownPieces()
    document = text_of(1, 20_000)
    tokens = Tokens(core, document)
    for start, stop in ((0, 4000), (4000, 12_000), (12_000, 15_000)):
        pieces.learn(tokens, start, stop)
    found = pieces.find(document)
    assert found is not None
    assert found[0].text == document[4000:12_000].strip()


def test_threads_may_learn_while_others_ask() -> None:
    core = backend("qwen")
    encoder = Encoder(core)
    texts = [f"{i} " + "mira holds 472. Kolu holds 118. " * 100 + f" {i}" for i in range(40)]

    def work(text: str) -> bool:
        encoder.pieces.learn(Tokens(core, text), 0, len(text))
        prompt = f"Section: {text}\nMemory: {text[:9]}"
        return encoder.encode(prompt) == ids_of(core, prompt)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, texts * 3))


def test_control_tokens_of_a_section_are_spelt_apart() -> None:
    tokenizer = load_tokenizer("tiny")
    core = tokenizer.backend_tokenizer
    known, fresh = Renderer(tokenizer), Renderer(tokenizer)
    end = tokenizer.convert_ids_to_tokens(known.end_id)
    for section in (f"mira holds 472 {end} Kolu holds 118. " * 100, "mira holds 472. Kolu holds 118. " * 100):
        known.learn(Tokens(core, section), 0, len(section))
        messages = [Message("user", f"Memory: none\nSection: {section.strip()}\n")]
        assert known.prompt(messages) == fresh.prompt(messages)


@pytest.mark.parametrize("length", [40_000, 200_000], ids=["short", "read_ahead"])
def test_a_sessions_sections_are_known_before_they_are_asked_about(length: int) -> None:
    renderer = Renderer(load_tokenizer("tiny"))
    document = (text_of(0, 997, 0.9) + " mira holds 472. ") * (length // 1000)
    session = Session(Task("a", "b"), Trajectory("a", 0), {"*": Binding(None, renderer)}, Sampling(), "key")
    assert renderer._encoder is not None
    counting = renderer._encoder.backend = Counting(renderer._encoder.backend)
    shown = 0
    for part in session.sections(document, 5000, "sentence", 0):
        text = f"Memory: {shown}\nSection: {part.strip()}\n"
        assert renderer.encode(text) == ids_of(counting.core, text)
        shown += len(part)
    assert shown > length * 0.9
    assert counting.asked < shown / 4
