"""What each phase of a run gave on the held-out tasks: means with intervals, and paired differences between phases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from recollect.eval.accuracy import Accuracy, mean_score, of_scores
from recollect.eval.paired import PairedDifference, paired
from recollect.types import Group

PHASES = {"base": "before training", "sft": "after SFT", "rl": "after RL"}
TaskScores = Mapping[str, float]  # by the task's id


def task_scores(groups: Sequence[Group]) -> dict[str, float]:
    """The mean reward of each task's attempts; a failed one counts 0."""
    return {group.task.id: mean_score(group.trajectories) for group in groups}


def phase_means(scores: Mapping[str, TaskScores]) -> dict[str, Accuracy]:
    """The mean of each phase that was measured, with its interval, by its name for people."""
    return {name: of_scores([*scores[key].values()]) for key, name in PHASES.items() if scores.get(key)}


def phase_differences(scores: Mapping[str, TaskScores]) -> list[PairedDifference]:
    """Each phase against the one before it, and the last against the first, on the same tasks."""
    measured = [key for key in PHASES if scores.get(key)]
    pairs = [*pairwise(measured)]
    if len(measured) > 2:
        pairs.append((measured[0], measured[-1]))
    made = [paired(f"{PHASES[b]} − {PHASES[a]}", scores[a], scores[b]) for a, b in pairs]
    return [difference for difference in made if difference is not None]


def signed(low: float, high: float) -> str:
    """An interval of a difference, for people."""
    return f"{low:+.3f} – {high:+.3f}"
