"""Success rates with 95 % intervals. Failed attempts stay in the denominator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from recollect.types import Group, Trajectory


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
    p = min(1.0, max(0.0, successes / n))
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, min(p, centre - half)), min(1.0, max(p, centre + half))  # rounding must not leave p outside


def of_scores(scores: Sequence[float]) -> Accuracy:
    """The mean of tasks' scores and its interval: Wilson's for shares, else the normal one.

    Scores between 0 and 1 vary at most as much as successes and failures do, so for them Wilson's is on the safe side.
    """
    total, n = sum(scores), len(scores)
    mean = total / max(1, n)
    if all(0 <= s <= 1 for s in scores):
        return Accuracy(mean, *wilson(total, n), n)
    half = 1.96 * math.sqrt(sum((s - mean) ** 2 for s in scores) / max(1, n - 1) / n)
    return Accuracy(mean, mean - half, mean + half, n)


def mean_score(attempts: Sequence[Trajectory]) -> float:
    """The mean reward of a task's attempts; a failed one counts 0."""
    return sum(t.reward if t.valid else 0.0 for t in attempts) / max(1, len(attempts))


def accuracy(groups: Sequence[Group]) -> Accuracy:
    """Mean reward over tasks (each the mean of its samples; a failed sample counts 0), with its interval."""
    return of_scores([mean_score(g.trajectories) for g in groups])
