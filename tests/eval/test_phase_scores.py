"""Phases of a run on held-out tasks: means with intervals, and differences on the same tasks."""

from __future__ import annotations

import pytest

from recollect.eval.phase_scores import phase_differences, phase_means, task_scores
from recollect.types import Failure, Group, Score, Task, Trajectory

SCORES = {
    "base": {"a": 0.0, "b": 0.0, "c": 0.5, "d": 0.0},
    "sft": {"a": 0.5, "b": 0.0, "c": 0.5, "d": 0.5},
    "rl": {"a": 1.0, "b": 0.5, "c": 1.0, "e": 1.0},
}


def test_means_are_over_all_tasks_of_a_phase() -> None:
    means = phase_means(SCORES)
    assert [*means] == ["before training", "after SFT", "after RL"]
    assert means["before training"].accuracy == pytest.approx(0.125)
    assert means["after RL"].accuracy == pytest.approx(0.875)
    assert all(found.low <= found.accuracy <= found.high and found.n == 4 for found in means.values())


def test_differences_are_over_the_tasks_that_both_phases_have() -> None:
    sft, rl, whole = phase_differences(SCORES)
    assert (sft.what, sft.n) == ("after SFT − before training", 4)
    assert sft.difference == pytest.approx(0.25)
    assert (rl.what, rl.n) == ("after RL − after SFT", 3)  # a, b and c
    assert rl.difference == pytest.approx(0.5)
    assert whole.what == "after RL − before training"
    assert whole.difference == pytest.approx(2 / 3)
    assert whole.low <= whole.difference <= whole.high


def test_phases_that_were_not_measured_are_left_out() -> None:
    (only,) = phase_differences({"base": SCORES["base"], "rl": SCORES["rl"], "sft": {}})
    assert only.what == "after RL − before training"
    assert phase_differences({"rl": SCORES["rl"]}) == []
    assert phase_differences({}) == []


def test_a_failed_attempt_counts_as_nothing() -> None:
    task = Task("a", "?")
    right, failed = Trajectory("a", 0), Trajectory("a", 1)
    right.score, failed.failure = Score(1.0), Failure("timeout", "late")
    assert task_scores([Group(task, [right, failed])]) == {"a": 0.5}
