"""Differences between two evaluations of the same items, with 95 % intervals of the paired bootstrap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from recollect.data.locomo import ADVERSARIAL, CATEGORIES
from recollect.eval.by_category import ANSWERABLE, CATEGORY_METRICS
from recollect.eval.items import METRICS, Item
from recollect.types import BadInput

REWARD = "reward"
RESAMPLES = 10_000
SEED = 0  # the same items always give the same interval


@dataclass(frozen=True)
class PairedDifference:
    """Two means over the same items, and their difference, second − first, with its interval."""

    what: str
    first: float
    second: float
    difference: float
    low: float
    high: float
    n: int

    def row(self) -> dict[str, Any]:
        return asdict(self)


def item_scores(items: Sequence[Item], metric: str) -> dict[tuple[str, int], float]:
    """The mean score of each question at each length, over its samples."""
    if metric not in (REWARD, *METRICS):
        known = ", ".join([REWARD, *METRICS, *CATEGORY_METRICS])
        raise BadInput(f"--metric {metric} is unknown; known: {known}")
    found: dict[tuple[str, int], list[float]] = {}
    for item in items:
        score = item.reward if metric == REWARD else item.scores[metric]
        found.setdefault((question_id(item), item.length), []).append(score)
    return {key: sum(scores) / len(scores) for key, scores in found.items()}


def question_id(item: Item) -> str:
    """The id of an item's question: data files with several lengths write the length after it."""
    return item.id.removesuffix(f"-{item.length}")


def paired(what: str, first: Mapping[Any, float], second: Mapping[Any, float]) -> PairedDifference | None:
    """The difference on what both have; None where that is nothing."""
    both = [key for key in first if key in second]
    if not both:
        return None
    a, b = (np.array([scores[key] for key in both]) for scores in (first, second))
    low, high = bootstrap(b - a)
    return PairedDifference(what, float(a.mean()), float(b.mean()), float((b - a).mean()), low, high, len(both))


def bootstrap(differences: np.ndarray) -> tuple[float, float]:
    """The 2.5 % and 97.5 % points of the mean over items that are drawn anew."""
    rng, size, means = np.random.default_rng(SEED), len(differences), []
    most = max(1, 4_000_000 // size)  # draws that are held at once
    for start in range(0, RESAMPLES, most):
        picked = rng.integers(0, size, (min(most, RESAMPLES - start), size))
        means.append(differences[picked].mean(axis=1))
    low, high = np.percentile(np.concatenate(means), [2.5, 97.5])
    return float(low), float(high)


def between(first: Mapping[tuple[str, int], float], second: Mapping[tuple[str, int], float]) -> list[PairedDifference]:
    """Two evaluations on all items that both have, and at each length where there are several."""
    lengths = sorted({length for _, length in first} & {length for _, length in second})
    whole = [paired("all", first, second)]
    if len(lengths) > 1:
        for n in lengths:
            at = [{key: score for key, score in scores.items() if key[1] == n} for scores in (first, second)]
            whole.append(paired(f"length {n}", *at))
    return [row for row in whole if row is not None]


QuestionScores = dict[tuple[int, str, int], float]  # category, task, number of the question → mean score over samples


def question_values(items: Sequence[Item], metric: str) -> QuestionScores:
    """The mean score of each question that has a category, over its samples."""
    found: dict[tuple[int, str, int], list[float]] = {}
    for item in items:
        for i, row in enumerate(item.questions):
            if metric in row["scores"]:
                found.setdefault((row["category"], item.id, i), []).append(row["scores"][metric])
    return {key: sum(scores) / len(scores) for key, scores in found.items()}


def between_categories(first: QuestionScores, second: QuestionScores) -> list[PairedDifference]:
    """Two evaluations on the questions that both have: all, categories 1 to 4, and each category."""
    chosen = {"all": tuple(CATEGORIES), ANSWERABLE: tuple(c for c in CATEGORIES if c != ADVERSARIAL)}
    chosen |= {f"{number} {name}": (number,) for number, name in CATEGORIES.items()}
    made = []
    for what, kinds in chosen.items():
        parts = [{key: score for key, score in scores.items() if key[0] in kinds} for scores in (first, second)]
        made.append(paired(what, *parts))
    return [row for row in made if row is not None]


def across_lengths(scores: Mapping[tuple[str, int], float]) -> list[PairedDifference]:
    """The same questions at each length against the shortest."""
    by_length: dict[int, dict[str, float]] = {}
    for (name, length), score in sorted(scores.items(), key=lambda pair: pair[0][1]):
        by_length.setdefault(length, {})[name] = score
    shortest, *longer = by_length or [0]
    found = [paired(f"length {n} − length {shortest}", by_length[shortest], by_length[n]) for n in longer]
    return [row for row in found if row is not None]
