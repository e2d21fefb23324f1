"""Texts that begin alike are tokenised as if each were alone."""

from __future__ import annotations

import string

from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.chat.encoder import LONG, Encoder, common_start
from recollect.models.load import load_tokenizer

BACKEND = load_tokenizer("tiny").backend_tokenizer
WORDS = st.lists(
    st.text(string.ascii_letters + string.digits + ".,é漢\u200d\n'", min_size=1, max_size=9), min_size=1, max_size=40
)


@settings(max_examples=60, deadline=None)
@given(start=WORDS, tails=st.lists(WORDS, min_size=2, max_size=4), glue=st.sampled_from([" ", "", "\n"]))
def test_ids_are_those_of_the_backend(start: list[str], tails: list[list[str]], glue: str) -> None:
    beginning = (" ".join(start) + " ") * (1 + 2 * LONG // (1 + sum(map(len, start))))
    encoder = Encoder(BACKEND)
    for tail in tails:
        text = beginning + glue + glue.join(tail)
        assert encoder.encode(text) == BACKEND.encode(text, add_special_tokens=False).ids


def test_a_known_beginning_is_not_tokenised_again() -> None:
    asked: list[int] = []

    class Counting:
        def encode(self, text: str, add_special_tokens: bool) -> object:
            asked.append(len(text))
            return BACKEND.encode(text, add_special_tokens=add_special_tokens)

    encoder = Encoder(Counting())
    section = "mira holds 472. kolu holds 118. " * 300
    for memory in ("none", "mira holds 472", "kolu holds 118"):
        encoder.encode(section + "Memory: " + memory)
    assert asked[0] > len(section)
    assert max(asked[1:]) < 1000


@given(st.text("ab", max_size=50), st.text("ab", max_size=50))
def test_common_start(a: str, b: str) -> None:
    n = common_start(a, b)
    assert a[:n] == b[:n]
    assert n == min(len(a), len(b)) or a[n] != b[n]
