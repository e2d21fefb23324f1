"""The two streams of tasks that a family has, from one function that makes a task."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from recollect.config import Config
from recollect.tasks.names import Split
from recollect.types import Task

HELD_OUT_SEED = 7_777
Make = Callable[[random.Random, Split], Task]


@dataclass(frozen=True)
class Stream:
    """Tasks number 0, 1, 2, …; each depends on the seed, the set and its number alone."""

    name: str
    make: Make

    def task(self, seed: int, split: Split, index: int) -> Task:
        """One task."""
        task = self.make(random.Random(f"{self.name}:{split}:{seed}:{index}"), split)
        task.id, task.source = f"{self.name}-{split}-{seed}-{index}", self.name
        return task

    def train(self, cfg: Config, step: int, index: int) -> Task:
        """A training task."""
        return self.task(cfg.trainer.seed, "train", index)

    def held_out(self, cfg: Config, multiple: int, index: int) -> Task:
        """A held-out task; it has no length, so the multiple is ignored."""
        return self.task(HELD_OUT_SEED, "held_out", index)
