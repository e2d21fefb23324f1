"""Success rates and their intervals."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.eval.accuracy import accuracy, wilson
from recollect.eval.evaluate import by_source
from recollect.types import Failure, Group, Score, Task, Trajectory


def group(*rewards: float | None, source: str = "default") -> Group:
    """A task's attempts; None is a failed one."""
    attempts = [
        Trajectory("t", i, failure=Failure("timeout", "late")) if r is None else Trajectory("t", i, score=Score(r))
        for i, r in enumerate(rewards)
    ]
    return Group(Task("t", "q", source=source), attempts)


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [  # Wilson score intervals without continuity correction, as in Newcombe (1998) and statsmodels
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (8, 10, 0.4902, 0.9433),
        (10, 10, 0.7225, 1.0),
        (5, 10, 0.2366, 0.7634),
    ],
)
def test_wilson_against_published_values(successes: int, n: int, low: float, high: float) -> None:
    assert wilson(successes, n) == pytest.approx((low, high), abs=1e-4)


def test_wilson_of_nothing_is_everything() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


@given(n=st.integers(1, 500), share=st.floats(0, 1))
def test_wilson_holds_the_rate_and_stays_a_share(n: int, share: float) -> None:
    low, high = wilson(share * n, n)
    assert 0 <= low <= share + 1e-9
    assert share - 1e-9 <= high <= 1
    mirrored = wilson((1 - share) * n, n)
    assert (low, high) == pytest.approx((1 - mirrored[1], 1 - mirrored[0]))
    wider = wilson(share * n, n, z=2.58)
    assert wider[0] <= low + 1e-9
    assert wider[1] >= high - 1e-9


def test_failures_stay_in_the_denominator() -> None:
    found = accuracy([group(1.0), group(None), group(0.0), group(1.0)])
    assert (found.accuracy, found.n) == (0.5, 4)
    assert (found.low, found.high) == wilson(2, 4)
    assert accuracy([group(1.0, None, None, 1.0)]).accuracy == 0.5
    assert accuracy([group(None, None)]).accuracy == 0.0


def test_a_task_counts_once_however_many_samples() -> None:
    found = accuracy([group(1.0, 1.0, 1.0), group(0.0)])
    assert (found.accuracy, found.n) == (0.5, 2)
    assert found.row() == {"accuracy": 0.5, "low": found.low, "high": found.high, "n": 2}


def test_no_tasks() -> None:
    assert accuracy([]).n == 0
    assert accuracy([]).accuracy == 0.0


def test_an_unscored_attempt_is_no_success() -> None:
    assert accuracy([Group(Task("t", "q"), [Trajectory("t", 0)])]).accuracy == 0.0


@pytest.mark.parametrize("rewards", [(-1.0, -1.0, 1.0), (2.0, 3.0, 2.0), (-0.5,) * 10])
def test_rewards_that_are_no_shares_have_a_mean_and_an_interval(rewards: tuple[float, ...]) -> None:
    """A user's reward may be any finite number; validation must survive it."""
    found = accuracy([group(r) for r in rewards])
    assert found.accuracy == pytest.approx(sum(rewards) / len(rewards))
    assert math.isfinite(found.low)
    assert math.isfinite(found.high)


def test_by_source() -> None:
    groups = [group(1.0, source="b"), group(0.0, source="a"), group(None, source="b")]
    found = by_source(groups)
    assert list(found) == ["b", "a"]
    assert (found["b"].accuracy, found["b"].n, found["a"].accuracy, found["a"].n) == (0.5, 2, 0.0, 1)
