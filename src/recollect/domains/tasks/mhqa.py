"""What does the one that somebody trusts hold? Two look-ups in a small collection of facts."""

from __future__ import annotations

import random

from recollect.tasks.family import Stream
from recollect.tasks.names import Split, names, values
from recollect.tasks.needle import NeedleShape, distractor, holds, question, trusts
from recollect.types import Task

FACTS = 14
SHAPE = NeedleShape(chunks=1, facts_per_chunk=FACTS, hops=2, similar=0.3)


def make(rng: random.Random, split: Split) -> Task:
    """A task whose document is facts, one in a line."""
    first, second = needed = rng.sample(names(split), 2)
    value = rng.choice(values(split))
    facts = [distractor(rng, needed, split, SHAPE) for _ in range(FACTS - 2)]
    facts = [*facts, trusts(first, second), holds(second, value)]
    rng.shuffle(facts)
    return Task("", question(first, 2), "\n".join(facts), (value,))


TASKS = Stream("mhqa", make)
