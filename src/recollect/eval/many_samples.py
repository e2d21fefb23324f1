"""Scores from n samples of each task: mean, best and majority, with 95 % intervals.

A failed attempt counts 0 in the mean, and neither votes nor competes; a task whose attempts all failed scores 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from recollect.eval.accuracy import Accuracy, mean_score, of_scores
from recollect.rewards.text import last_boxed, normalize
from recollect.types import Group, Trajectory


def best_score(attempts: Sequence[Trajectory]) -> float:
    """The largest reward."""
    return max((t.reward for t in attempts if t.valid), default=0.0)


def majority_score(attempts: Sequence[Trajectory]) -> float:
    """The mean reward of the attempts that gave the most common answer; of equally common ones, the first given."""
    votes: dict[str, list[float]] = {}
    for t in attempts:
        if t.valid:
            votes.setdefault(said(t.answer), []).append(t.reward)
    most = max(votes.values(), key=len, default=[0.0])
    return sum(most) / len(most)


def said(answer: str) -> str:
    r"""An answer in the form that is compared: the last \boxed{…} or all of it, normalised unless nothing is left."""
    boxed = last_boxed(answer)
    text = answer.strip() if boxed is None else boxed
    return normalize(text) or text


SCORES: dict[str, Callable[[Sequence[Trajectory]], float]] = {
    "mean": mean_score,
    "best": best_score,
    "maj": majority_score,
}


def at_n(groups: Sequence[Group]) -> dict[str, Accuracy]:
    """``mean@n``, ``best@n`` and ``maj@n`` over tasks with n samples each."""
    n = max((len(g.trajectories) for g in groups), default=1)
    return {f"{name}@{n}": of_scores([score(g.trajectories) for g in groups]) for name, score in SCORES.items()}
