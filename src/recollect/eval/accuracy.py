"""Success rates with 95 % intervals. Failed attempts stay in the denominator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from recollect.types import Group


@dataclass(frozen=True)
class Accuracy:
    """A success rate over ``n`` tasks and its interval."""

    accuracy: float
    low: float
    high: float
    n: int

    def row(self) -> dict[str, float]:
        return asdict(self)


def wilson(successes: float, n: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's 95 % interval of a success rate."""
    if n == 0:
        return 0.0, 1.0
    p = successes / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, centre - half), min(1.0, centre + half)


def accuracy(groups: Sequence[Group]) -> Accuracy:
    """Mean reward over tasks (each the mean of its samples; a failed sample counts 0), with its interval."""
    scores = [sum(t.reward if t.valid else 0.0 for t in g.trajectories) / max(1, len(g.trajectories)) for g in groups]
    total = sum(scores)
    low, high = wilson(total, len(scores))
    return Accuracy(total / max(1, len(scores)), low, high, len(scores))
