"""Look-up exercises that come before the skill teacher's examples when a model starts from nothing.

To look up a name's value, a model has to carry the name to the value that follows it, and to match names. Neither
helps without the other, so on whole facts a random model learns neither for a long time. Two things make it short.
Values have one digit, because the later digits of a value are easy to copy and drown the first. And "holds" is added
little by little: a digit right after its name is found within two hundred updates, then the distance grows.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from recollect.tasks.names import Split, names, similar_names

HOLDS_BEGINS, HOLDS_ALWAYS = (
    0.45,
    0.85,
)  # shares of the exercises after which "holds" comes in, and is always there
NAMES, ASKED = (2, 5), 10  # how many names a list has, and how many of them are asked again
SIMILAR = 0.3  # share of lists whose names share a syllable, once "holds" comes in


@dataclass(frozen=True)
class Drill:
    """A list of names and digits, and the pieces that follow: each a text, and whether it has to be predicted."""

    given: tuple[str, ...]
    asked: tuple[tuple[str, bool], ...]


def make_drill(rng: random.Random, done: float, split: Split = "train") -> Drill:
    """An exercise when a share ``done`` of them is over: a list, then its names again, for which the digits are due."""
    word = min(1.0, max(0.0, (done - HOLDS_BEGINS) / (HOLDS_ALWAYS - HOLDS_BEGINS)))
    pool = names(split)
    if word and rng.random() < SIMILAR:
        pool = similar_names(rng.choice(pool), split)
    digits = {name: f" {rng.randrange(10)}" for name in rng.sample(pool, rng.randint(*NAMES))}

    def start(name: str) -> str:
        return f" {name} holds" if rng.random() < word else f" {name}"

    given = [piece for name, digit in digits.items() for piece in (start(name), digit, ".")]
    again = rng.choices(list(digits), k=ASKED)
    asked = [piece for name in again for piece in ((start(name), False), (digits[name], True), (".", False))]
    return Drill(tuple(given), tuple(asked))
