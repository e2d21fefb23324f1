"""Wrong values beside a right one: an equality that means something tells them apart.

Whoever accepts most of a shuffled line-up accepts anything; whoever accepts the right one alone knows it. The text of
this file also runs in the sandbox.
"""

from __future__ import annotations

import random
import string
from typing import Any

COUNT = 8
SHARE = 4  # an equality that accepts more than one of so many decoys decides nothing
SCALAR = (int, float, complex, str, bytes)
CONTAINERS = (list, tuple, set, frozenset, dict)
LONG = 400  # elements of a container, or characters of a text, beyond which a decoy is short


def decoys(value: Any, rng: random.Random, count: int = COUNT) -> list[Any]:
    """Values of the shape of one that is made of built-in types, none equal to it; unrelated ones for another."""
    made = [decoy(value, rng) for _ in range(4 * count)]
    if type(value) in SCALAR:
        made = list(dict.fromkeys(v for v in made if type(v) not in CONTAINERS))
    return made[:count]


def decoy(value: Any, rng: random.Random) -> Any:
    """One such value."""
    kind = type(value)
    if kind is int:
        return value + rng.choice((-1, 1)) * rng.randint(1, rng.choice((5, 60)))
    if kind is float and value - value == 0:
        return value + rng.choice((-1, 1)) * max(1.0, abs(value)) * rng.uniform(0.5, rng.choice((2, 40)))
    if kind is complex:
        return value + rng.randint(1, 60)
    if kind is str:
        return _letter(value, rng)
    if kind in (bytes, bytearray):
        return kind(_letter(value[:LONG].decode("latin-1"), rng).encode("latin-1"))
    if kind in (list, tuple, set, frozenset):
        return kind(_items(list(value), rng))
    if kind is dict:
        return _entries(value, rng)
    return unrelated(rng)


def unrelated(rng: random.Random) -> Any:
    """A value of no particular kind."""
    text = "".join(rng.choices(string.ascii_lowercase, k=rng.randint(3, 9)))
    number = rng.randint(-999, 999)
    return rng.choice((number, number / 7, text, [text], (text, number), {text: number}))


def meaningless(accepted: int, asked: int) -> bool:
    """Whether so many decoys were accepted that being accepted says nothing."""
    return accepted * SHARE > asked


def _letter(text: str, rng: random.Random) -> str:
    """A text with one letter or digit more, or another one in place of one."""
    text = text if len(text) <= LONG else text[: rng.randint(1, 40)]
    at, new = rng.randint(0, len(text)), rng.choice(string.ascii_lowercase + string.digits)
    keeps = at == len(text) or rng.random() < 0.5 or text[at].lower() == new
    return text[:at] + new + text[at + (not keeps) :]


def _items(items: list[Any], rng: random.Random) -> list[Any]:
    """Other items: one that differs, or one more."""
    items = items if len(items) <= LONG else items[: rng.randint(1, 9)]
    if not items or rng.random() < 0.2:
        return [*items, decoy(items[0], rng) if items and _is_hashable(items[0]) else rng.randint(1, 999)]
    at = rng.randrange(len(items))
    return [*items[:at], decoy_like(items[at], rng), *items[at + 1 :]]


def _entries(value: dict[Any, Any], rng: random.Random) -> dict[Any, Any]:
    entries = list(dict.items(value))[:LONG]
    if not entries:
        return {rng.randint(1, 999): rng.randint(1, 999)}
    at = rng.randrange(len(entries))
    key, item = entries[at]
    return dict([*entries[:at], (key, decoy_like(item, rng)), *entries[at + 1 :]])


def decoy_like(value: Any, rng: random.Random) -> Any:
    """A decoy that may stand in a set where the value may."""
    made = decoy(value, rng)
    return made if _is_hashable(made) or not _is_hashable(value) else rng.randint(1, 999)


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except Exception:
        return False
    return True
