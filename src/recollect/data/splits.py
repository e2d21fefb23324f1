"""Parts of a data set that share neither a paragraph nor a question: train, tune and test."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from recollect.types import BadInput

SPLITS = ("train", "tune", "test")
SHARES = (0.7, 0.1, 0.2)  # of the questions


def read_shares(text: str) -> tuple[float, ...]:
    """Shares of the three parts from what a user gave, such as 70,10,20; they are divided by their sum."""
    try:
        given = [float(part) for part in text.split(",")]
    except ValueError:
        given = []
    if len(given) != len(SPLITS) or not all(0 <= share < float("inf") for share in given) or not sum(given):
        raise BadInput(f"--shares {text}: give three numbers for {', '.join(SPLITS)}, such as 70,10,20")
    return tuple(share / sum(given) for share in given)


def check_split(name: str | None) -> None:
    """Refuse a part that there is not."""
    if name is not None and name not in SPLITS:
        raise BadInput(f"--split {name} is unknown; known: {', '.join(SPLITS)}")


def same_words(text: str) -> str:
    """A text without case and extra white space: what is equal then counts as the same."""
    return " ".join(text.casefold().split())


def split_of(texts: Sequence[str], asked: Sequence[tuple[str, int]], shares: Sequence[float]) -> list[str]:
    """The part of every paragraph. ``asked`` has (question, paragraph) pairs.

    Paragraphs with the same words, or with the same question, go to one part. The order in which paragraphs fill the
    parts depends on their texts alone.
    """
    leader = _joined(texts, asked)
    groups: dict[int, list[int]] = {}
    for i in range(len(texts)):
        groups.setdefault(leader[i], []).append(i)
    count = [0] * len(texts)
    for _, own in asked:
        count[own] += 1
    order = sorted(groups.values(), key=lambda group: min(_drawn(texts[i]) for i in group))
    found, done = [""] * len(texts), 0
    for group in order:
        for i in group:
            found[i] = _part(done / max(1, len(asked)), shares)
        done += sum(count[i] for i in group)
    return found


def _joined(texts: Sequence[str], asked: Sequence[tuple[str, int]]) -> list[int]:
    """For every paragraph, the first one that it is tied to."""
    leader = list(range(len(texts)))

    def find(i: int) -> int:
        while leader[i] != i:
            leader[i] = leader[leader[i]]
            i = leader[i]
        return i

    first: dict[tuple[str, str], int] = {}
    ties = [(("text", same_words(text)), i) for i, text in enumerate(texts)]
    ties += [(("question", same_words(question)), own) for question, own in asked]
    for key, i in ties:
        a, b = sorted((find(first.setdefault(key, i)), find(i)))
        leader[b] = a
    return [find(i) for i in range(len(texts))]


def _drawn(text: str) -> bytes:
    return hashlib.blake2b(f"split:{same_words(text)}".encode(errors="replace"), digest_size=8).digest()


def _part(place: float, shares: Sequence[float]) -> str:
    end = 0.0
    for name, share in zip(SPLITS, shares, strict=True):
        end += share
        if place < end:
            return name
    return next(name for name, share in reversed(list(zip(SPLITS, shares, strict=True))) if share)
