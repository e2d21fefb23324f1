"""Sums and differences of what people hold, among others that are not asked for."""

from __future__ import annotations

import random

from recollect.tasks.family import Stream
from recollect.tasks.names import Split, names, values
from recollect.tasks.needle import holds
from recollect.types import Task

PEOPLE = 3


def make(rng: random.Random, split: Split) -> Task:
    """A task in words."""
    people = rng.sample(names(split), PEOPLE)
    held = rng.sample([v for v in values(split) if v[0] != "0"], PEOPLE)
    a, b = rng.sample(range(PEOPLE), 2)
    facts = " ".join(holds(name, value) for name, value in zip(people, held, strict=True))
    if rng.random() < 0.5:
        asked, answer = f"What do {people[a]} and {people[b]} hold in total?", int(held[a]) + int(held[b])
    else:
        asked, answer = f"How much more does {people[a]} hold than {people[b]}?", int(held[a]) - int(held[b])
    return Task("", f"{facts} {asked}", None, (str(answer),))


TASKS = Stream("math", make)
