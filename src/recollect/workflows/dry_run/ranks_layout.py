"""Which ranks a run would have, and what each of them would hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recollect.config import Config
from recollect.training.learner.ranks.place_of import place_of
from recollect.workflows.dry_run.predict import Need

ELSEWHERE = "rollout"  # the part that the driver holds


@dataclass(frozen=True)
class RanksLayout:
    """The ranks, and the bytes of each part in every one of them."""

    size: int
    device: str
    shards: int  # ranks that share one copy of the weights
    held: dict[str, int]
    driver: int  # bytes of what samples, on the first device

    @property
    def each(self) -> int:
        """Bytes that every rank needs."""
        return sum(self.held.values())

    @property
    def total(self) -> int:
        """Bytes on the fullest device: a machine's memory holds all ranks, the first GPU one of them."""
        return self.driver + self.each * (self.size if self.device == "cpu" else 1)

    def summary(self) -> dict[str, Any]:
        """For programs."""
        return {"count": self.size, "device": self.device, "fsdp_size": self.shards, "memory_each": self.each}

    def rows(self, words: Any) -> list[tuple[str, ...]]:
        """For people: ranks that hold the same, side by side; ``words`` says bytes."""
        parts = ", ".join(f"{part} {words(count)}" for part, count in self.held.items() if count)
        rows = []
        for first in range(0, self.size, self.shards):
            last = first + self.shards - 1
            who = f"rank {first}" if last == first else f"ranks {first}–{last}"
            where = "CPU processes" if self.device == "cpu" else f"GPU {first}" + (f"–{last}" if last > first else "")
            how = "all weights" if self.shards == 1 else f"1/{self.shards} of weights, gradients and moments each"
            rows.append((who, where, how, f"{words(self.each)} each: {parts}"))
        what = "samples" if self.device == "cpu" else "samples on GPU 0"
        what = what if self.driver else "keeps the loop; servers sample"
        return [*rows, ("driver", "this process", what, words(self.driver))]


def ranks_layout(cfg: Config, needs: Sequence[Need]) -> RanksLayout | None:
    """The ranks of a run; None where one process trains. What cannot be is refused."""
    place = place_of(cfg)
    if place is None:
        return None
    held = {need.part: -(-need.total // place.shards) for need in needs if need.part != ELSEWHERE}
    driver = sum(need.total for need in needs if need.part == ELSEWHERE)
    return RanksLayout(place.size, place.device, place.shards, held, driver)
