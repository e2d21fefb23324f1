"""Open-set names and values for made-up documents.

A name is two syllables ("mira"), a value three digits. Whether a name or value belongs to the training set or to the
held-out set is decided by a fixed hash of its text, so the two can never meet: not across recipes, seeds or versions.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import cache
from typing import Literal, TypeVar

T = TypeVar("T")
Split = Literal["train", "held_out"]
SYLLABLES = tuple(c + v for c in "bdfghjklmnprstvwyzcq" for v in "aeiou")
HELD_OUT_SHARE = 0.25
NOT_NAMES = frozenset({"none", "note", "name"})  # words of the documents that two syllables would spell


def split_of(text: str) -> Split:
    """The set that this name or value belongs to, for ever."""
    return "held_out" if zlib.crc32(f"recollect:{text}".encode()) % 1000 < HELD_OUT_SHARE * 1000 else "train"


@cache
def names(split: Split) -> tuple[str, ...]:
    """All names of one set."""
    spelt = (a + b for a in SYLLABLES for b in SYLLABLES)
    return tuple(n for n in spelt if split_of(n) == split and n not in NOT_NAMES)


@cache
def values(split: Split) -> tuple[str, ...]:
    """All three-digit values of one set."""
    return tuple(v for v in (f"{i:03d}" for i in range(1000)) if split_of(v) == split)


@cache
def similar_values(value: str, split: Split) -> tuple[str, ...]:
    """The values of a set that begin with the same digit."""
    return tuple(v for v in values(split) if v[0] == value[0])


@cache
def numbers(split: Split, digits: int) -> tuple[int, ...]:
    """All numbers of one set with so many digits."""
    return tuple(n for n in range(10 ** (digits - 1), 10**digits) if split_of(str(n)) == split)


def roll(text: str, sides: int) -> int:
    """A number below ``sides`` that depends only on a text: the dice of scripted players."""
    return zlib.crc32(f"roll:{text}".encode()) % sides


def mistaken(text: str, right: T, choices: Sequence[T]) -> T:
    """The choice of a player who confuses them: the right one 3 times of 10, the next 6, the one after it 1."""
    at, place = choices.index(right), roll(text, 10)
    return choices[(at + (0 if place < 3 else 1 if place < 9 else 2)) % len(choices)]


@cache
def _by_syllable(split: Split) -> dict[tuple[int, str], list[str]]:
    table: dict[tuple[int, str], list[str]] = {}
    for name in names(split):
        for place in (0, 1):
            table.setdefault((place, name[2 * place : 2 * place + 2]), []).append(name)
    return table


@cache
def similar_names(name: str, split: Split) -> tuple[str, ...]:
    """Names of the same set that share exactly one syllable, in its place, with this one."""
    table = _by_syllable(split)
    return tuple(n for n in table.get((0, name[:2]), []) + table.get((1, name[2:]), []) if n != name)
