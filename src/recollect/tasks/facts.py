"""A made-up world for the agent `react` and the tool `search`: "What does the one mira trusts hold?".

Everybody trusts somebody and holds something, and has a passage that says so. The answer takes two searches: whom mira
trusts, then what that one holds. Training names trust training names only, so nothing that a held-out task needs
is needed in training. The sloppy agent stops two times of three after the first search, with what mira holds herself.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from functools import cache

from recollect.config import Config
from recollect.tasks.names import Split, names, roll, values
from recollect.types import Task

PEOPLE = {"train": 6000, "held_out": 1500}
_QUESTION = re.compile(r"What does the one (\w+) trusts hold\?")
_PASSAGE = re.compile(r"(\w+) trusts (\w+)\. \w+ holds (\w+)\.")


@cache
def world(split: Split) -> dict[str, tuple[str, str]]:
    """Name → whom it trusts and what it holds."""
    rng = random.Random(f"facts:{split}")
    people = rng.sample(names(split), PEOPLE[split])
    trusted = [people[(i + rng.randrange(1, len(people))) % len(people)] for i in range(len(people))]  # never oneself
    return {name: (other, rng.choice(values(split))) for name, other in zip(people, trusted, strict=True)}


def passage(name: str, trusted: str, value: str) -> str:
    """What the corpus says about a name."""
    return f"{name} trusts {trusted}. {name} holds {value}."


def passages() -> Iterator[str]:
    """The corpus: a passage about everybody, in the order of their names."""
    everybody = world("train") | world("held_out")
    return (passage(name, *everybody[name]) for name in sorted(everybody))


def make_task(seed: int, index: int, split: Split) -> Task:
    """Task number ``index`` of the endless stream that ``seed`` names."""
    people = world(split)
    name = random.Random(f"facts:{split}:{seed}:{index}").choice(list(people))
    answer = people[people[name][0]][1]
    asked = f"What does the one {name} trusts hold?"
    return Task(f"facts-{split}-{seed}-{index}", asked, answers=(answer,), source="facts")


def train_task(cfg: Config, step: int, index: int) -> Task:
    """A training task."""
    return make_task(cfg.trainer.seed, index, "train")


def held_out_task(cfg: Config, multiple: int, index: int) -> Task:
    """A held-out task, about names and values that no training task has."""
    return make_task(7_777, index, "held_out")


def _search(name: str) -> str:
    return f"Action: search\nAction Input: {name}"


def expert(prompt: str) -> str:
    """What a perfect agent replies: a search for the name, one for whom it trusts, then what that one holds."""
    asked = _QUESTION.search(prompt)
    if asked is None:
        return "Final Answer: none"
    found = {name: (trusted, value) for name, trusted, value in _PASSAGE.findall(prompt)}
    if asked[1] not in found:
        return _search(asked[1])
    trusted = found[asked[1]][0]
    return f"Final Answer: {found[trusted][1]}" if trusted in found else _search(trusted)


def sloppy(prompt: str) -> str:
    """A player who two times of three takes what the first name holds for the answer."""
    asked, found = _QUESTION.search(prompt), _PASSAGE.findall(prompt)
    if asked is not None and len(found) == 1 and roll(asked[0], 3) > 0:
        return f"Final Answer: {found[0][2]}"
    return expert(prompt)
