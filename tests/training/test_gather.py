"""Dynamic sampling and greedy baselines."""

from __future__ import annotations

from typing import Any

import pytest

from recollect.config import Config
from recollect.training.rl.gather import Gatherer, TooManyFailures, has_signal
from recollect.types import BadInput, Completion, Failure, Group, Sampling, Score, Task, Trajectory, Turn


class Stream:
    """Tasks named by their batch and place."""

    def __init__(self, size: int) -> None:
        self.size = size

    def take(self, position: int) -> list[Task]:
        return [Task(f"{position}.{i}", "q") for i in range(self.size)]


class Standin:
    """Scores that depend on the task alone: a task's name says whether its samples differ."""

    def __init__(self, useful: Any, fails: Any = lambda task: False) -> None:
        self.useful, self.fails, self.keys = useful, fails, []  # type: ignore[var-annotated]

    async def collect(self, tasks: list[Task], n: int, sampling: Sampling, key: str) -> list[Group]:
        self.keys.append((key, n, sampling.temperature))
        groups = []
        for task in tasks:
            rows = [Trajectory(task.id, i, score=Score(float(i % 2 and self.useful(task)))) for i in range(n)]
            if self.fails(task):
                for row in rows:
                    row.score, row.failure = None, Failure("policy", "down")
            groups.append(Group(task, rows))
        return groups


def gatherer(useful: Any, batch: int = 4, most: int = 10, estimator: str = "grpo", **more: Any) -> Gatherer:
    cfg = Config()
    cfg.data.train_batch_size, cfg.actor_rollout_ref.rollout.n = batch, 2
    cfg.algorithm.filter_groups.enable, cfg.algorithm.filter_groups.max_num_gen_batches = True, most
    cfg.algorithm.adv_estimator = estimator
    return Gatherer(cfg, Stream(batch), Standin(useful, **more))  # type: ignore[arg-type]


def test_groups_without_signal_are_replaced_until_the_batch_is_full() -> None:
    work = gatherer(lambda task: task.id.endswith(".1"))
    made = work.gather(step=7, position=20)
    assert [g.task.id for g in made.groups] == ["20.1", "21.1", "22.1", "23.1"]
    assert made.batches == 4
    assert len(made.sampled) == 16
    assert [k for k, _, _ in work.collector.keys] == ["step-7", "step-7/1", "step-7/2", "step-7/3"]


def test_the_search_is_bounded() -> None:
    made = gatherer(lambda task: task.id == "1.3", most=3).gather(0, 0)
    assert made.batches == 3
    assert [g.task.id for g in made.groups] == ["1.3"]
    assert gatherer(lambda task: False, most=2).gather(0, 0).groups == []


def test_a_surplus_is_left_out() -> None:
    made = gatherer(lambda task: task.id != "0.0").gather(0, 0)
    assert [g.task.id for g in made.groups] == ["0.1", "0.2", "0.3", "1.0"]


def test_off_means_one_batch() -> None:
    work = gatherer(lambda task: False)
    work.cfg.algorithm.filter_groups.enable = False
    made = work.gather(0, 5)
    assert len(made.groups) == 4
    assert made.batches == 1
    assert made.greedy is None


def test_remax_rolls_out_greedily_and_keeps_baselines_with_their_groups() -> None:
    work = gatherer(lambda task: task.id.endswith(".2"), batch=3, estimator="remax")
    made = work.gather(0, 0)
    assert made.greedy == [Score(0.0)] * 3
    assert len(made.groups) == 3
    assert ("step-0/greedy", 1, 0.0) in work.collector.keys


def test_most_failed_stops_the_run() -> None:
    with pytest.raises(TooManyFailures, match=r"8 of 8 trajectories failed in step 4; most often policy: down"):
        gatherer(lambda task: True, fails=lambda task: True).gather(3, 3)


def test_signal_may_be_asked_of_a_part() -> None:
    one, two = (
        Trajectory("t", 0, score=Score(1.0, {"exact": 0.0})),
        Trajectory("t", 1, score=Score(1.0, {"exact": 1.0})),
    )
    group = Group(Task("t", "q"), [one, two])
    assert has_signal(group, "exact")
    assert not has_signal(group, "reward")
    two.failure = Failure("timeout", "late")
    assert not has_signal(group, "exact")


def test_a_metric_that_no_score_has_is_refused() -> None:
    work = gatherer(lambda task: True)
    work.cfg.algorithm.filter_groups.metric = "acuracy"
    with pytest.raises(BadInput, match=r"filter_groups.metric=acuracy: .* there are reward"):
        work.gather(0, 0)
    work.cfg.algorithm.filter_groups.metric = "acc"  # another system's name of the reward
    assert len(work.gather(0, 0).groups) == 4


def test_only_trained_roles_that_differ_are_signal() -> None:
    def group(trained: str) -> Group:
        turns = [Turn(r, (1,), Completion((2,), (-1.0,), "stop", 0, ""), r == trained) for r in ("memory", "qa")]
        rows = [Trajectory("t", i, turns, score=Score(1.0, roles={"memory": float(i)})) for i in range(2)]
        return Group(Task("t", "q"), rows)

    assert has_signal(group("memory"), "reward", by_role=True)
    assert not has_signal(group("qa"), "reward", by_role=True)
    assert not has_signal(group("memory"), "reward")  # compared by task, only the whole reward trains
