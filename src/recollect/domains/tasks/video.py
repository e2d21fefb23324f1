"""What does somebody hold at some moment? Captions in which names come back at other times."""

from __future__ import annotations

import random

from recollect.domains.captions import clock
from recollect.tasks.family import Stream
from recollect.tasks.names import Split, names, values
from recollect.tasks.needle import holds
from recollect.types import Task

CAPTIONS, PEOPLE = 5, 8  # so that somebody often occurs once, sometimes twice
STEP = 5  # seconds


def make(rng: random.Random, split: Split) -> Task:
    """A task whose document is a subtitle file."""
    people = rng.sample(names(split), PEOPLE)
    said = rng.sample(values(split), CAPTIONS)
    times = sorted(rng.sample(range(STEP, 60, STEP), CAPTIONS))
    who = [rng.choice(people) for _ in range(CAPTIONS)]
    asked = rng.randrange(CAPTIONS)
    cues = [
        f"{i}\n{_stamp(t)} --> {_stamp(t + STEP)}\n{holds(name, value)}"
        for i, (t, name, value) in enumerate(zip(times, who, said, strict=True), 1)
    ]
    text = f"What does {who[asked]} hold at {clock(times[asked])}?"
    return Task("", text, "\n\n".join(cues) + "\n", (said[asked],))


def _stamp(seconds: int) -> str:
    return f"00:{seconds // 60:02d}:{seconds % 60:02d},000"


TASKS = Stream("video", make)
