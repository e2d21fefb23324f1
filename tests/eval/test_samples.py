"""What n samples of a task say, against the plainest computation of the same."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.eval.accuracy import accuracy, wilson
from recollect.eval.evaluate import metric_names, validation_row
from recollect.eval.many_samples import at_n, best_score, majority_score, mean_score, said
from recollect.types import Failure, Group, Score, Task, Trajectory

Attempt = tuple[str, float] | None  # an answer and its reward, or a failure
attempt = st.one_of(st.none(), st.tuples(st.sampled_from(["a", "B.", "b", r"\boxed{a}", "c"]), st.floats(0, 1)))


def made(attempts: list[Attempt]) -> list[Trajectory]:
    return [
        Trajectory("t", i, failure=Failure("agent", "x"))
        if a is None
        else Trajectory("t", i, answer=a[0], score=Score(a[1]))
        for i, a in enumerate(attempts)
    ]


def group(attempts: list[Attempt], source: str = "s") -> Group:
    return Group(Task("t", "q", source=source), made(attempts))


@given(st.lists(attempt, min_size=1, max_size=7))
def test_against_plain_references(attempts: list[Attempt]) -> None:
    valid = [a for a in attempts if a is not None]
    assert mean_score(made(attempts)) == pytest.approx(sum(a[1] for a in valid) / len(attempts))
    assert best_score(made(attempts)) == (sorted(a[1] for a in valid)[-1] if valid else 0)
    same = {"a": "A", "B.": "B", "b": "B", r"\boxed{a}": "A", "c": "C"}
    names = [same[a[0]] for a in valid]
    won = 0.0
    if names:
        top = max(Counter(names).values())
        winner = next(n for n in names if names.count(n) == top)  # ties: the first given
        won = sum(a[1] for a, n in zip(valid, names, strict=True) if n == winner) / top
    assert majority_score(made(attempts)) == pytest.approx(won)


@pytest.mark.parametrize(
    ("attempts", "reward"),
    [
        ([("x", 0.0), ("y", 1.0), ("y", 1.0)], 1.0),
        ([("x", 0.0), ("y", 1.0)], 0.0),  # a tie: the first given
        ([("y", 1.0), ("x", 0.0)], 1.0),
        ([None, None, ("y", 1.0)], 1.0),  # failures do not vote
        ([None, None], 0.0),
        ([(r"so \boxed{The Cat}", 1.0), ("x", 0.0), (r"\boxed{cat}.", 1.0)], 1.0),
        ([("+", 1.0), ("-", 0.0), ("+", 1.0)], 1.0),  # nothing is left of these when they are normalised
    ],
)
def test_the_majority(attempts: list[Attempt], reward: float) -> None:
    assert majority_score(made(attempts)) == reward


def test_said() -> None:
    assert said(r"first \boxed{x} then \boxed{The  End!}") == "end"
    assert said("  ?! ") == "?!"


@given(st.lists(st.lists(attempt, min_size=1, max_size=1), min_size=1, max_size=9))
def test_one_sample_is_the_accuracy(tasks: list[list[Attempt]]) -> None:
    groups = [group(a) for a in tasks]
    found = at_n(groups)
    assert list(found) == ["mean@1", "best@1", "maj@1"]
    assert all(score == accuracy(groups) for score in found.values())


def test_best_lies_above_the_mean_and_order_does_not_matter() -> None:
    rng = random.Random(0)
    attempts: list[Attempt] = [(rng.choice("ab"), float(rng.random() < 0.3)) for _ in range(4)]
    for order in itertools.permutations(attempts):
        assert mean_score(made(list(order))) == mean_score(made(attempts))
        assert best_score(made(list(order))) == best_score(made(attempts)) >= mean_score(made(attempts))


def test_a_row_per_source() -> None:
    groups = [
        group([("a", 1.0), ("b", 0.0)], "one"),
        group([("a", 0.0), ("b", 0.0)], "two"),
        group([None, None], "one"),
    ]
    row = validation_row(groups)
    assert (row["val/one/accuracy"], row["val/one/mean@2"], row["val/one/best@2"]) == (0.25, 0.25, 0.5)
    assert (row["val/one/best@2/low"], row["val/one/best@2/high"]) == wilson(1, 2)
    assert (row["val/one/n"], row["val/two/n"], row["val/two/best@2"]) == (2, 1, 0.0)
    known = metric_names([g.task for g in groups], 2)
    assert set(known) <= set(row)
