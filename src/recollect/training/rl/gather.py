"""The trajectories of one step: tasks in, groups out, with dynamic sampling and greedy baselines if configured."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from recollect.agents.rollout import Collector, failures, first_failure
from recollect.config import Config
from recollect.config.aliases import sampling_seed
from recollect.registries import ESTIMATORS
from recollect.runtime.event_loop import run_timed
from recollect.sources.task_stream import TaskStream
from recollect.training.rl.estimate import earned
from recollect.types import BadInput, Group, Sampling, Score, Task


class TooManyFailures(RuntimeError):
    """A step in which most trajectories failed; the message names what failed."""


@dataclass
class Gathered:
    """What a step sampled."""

    groups: list[Group] = field(default_factory=list)  # those to train on
    sampled: list[Group] = field(default_factory=list)  # all, those without signal included
    greedy: list[Score] | None = None  # where the estimator reads it: the score of each group's greedy rollout
    batches: int = 0  # batches of tasks that were taken
    waited: float = 0.0  # seconds in which every agent waited for something outside: a tool, a reward, an endpoint
    as_sampled: bool = False  # the loss compares with the log-probabilities that tokens were sampled with
    version: int | None = None  # of the weights that sampled it; None: nobody says
    times: dict[str, float] = field(default_factory=dict)  # its row of times, where it was sampled before its step
    goes_on: bool = False  # the sampler is at work on other batches


class WrongVersion(RuntimeError):
    """A completion that other weights have sampled than those that should have; it is not trained on."""


class GroupSource(Protocol):
    """Who provides a step's groups: a sampler, or a reader of stored ones."""

    def gather(self, step: int, position: int) -> Gathered: ...


class Gatherer:
    """Takes tasks and collects their trajectories."""

    def __init__(self, cfg: Config, stream: TaskStream, collector: Collector) -> None:
        self.cfg, self.stream, self.collector = cfg, stream, collector
        rollout = cfg.actor_rollout_ref.rollout
        limit = cfg.data.max_response_length
        self.run = run_timed  # how coroutines are run
        self.sampling = Sampling(rollout.temperature, rollout.top_p, rollout.top_k, limit, seed=sampling_seed(cfg))

    def gather(self, step: int, position: int) -> Gathered:
        """The groups of a step. ``position`` counts the batches of tasks that earlier steps took."""
        made, wanted, choose = Gathered(), self.cfg.data.train_batch_size, self.cfg.algorithm.filter_groups
        greedy: list[Score] = []
        greedily = ESTIMATORS.knows(self.cfg.algorithm.adv_estimator, "needs_greedy")
        while True:
            tasks = self.stream.take(position + made.batches)
            key = f"step-{step}" + (f"/{made.batches}" if made.batches else "")
            (groups, baselines), waited = self.run(self._sample(tasks, key, greedily))
            made.waited += waited
            self._stop_if_broken(groups, step)
            made.batches += 1
            made.sampled += groups
            if choose.enable:
                _check_metric(choose.metric, groups)
            by_role = self.cfg.algorithm.group_by != "task"
            useful = [not choose.enable or has_signal(g, choose.metric, by_role) for g in groups]
            made.groups += [g for g, keep in zip(groups, useful, strict=True) if keep]
            greedy += [b for b, keep in zip(baselines, useful, strict=True) if keep]
            if len(made.groups) >= wanted or not choose.enable or made.batches >= choose.max_num_gen_batches:
                break
        made.groups = made.groups[:wanted]
        made.greedy = greedy[:wanted] if greedily else None
        return made

    async def _sample(self, tasks: list[Task], key: str, greedily: bool) -> tuple[list[Group], list[Score]]:
        n = self.cfg.actor_rollout_ref.rollout.n
        sampled = self.collector.collect(tasks, n, self.sampling, key)
        if not greedily:
            return await sampled, [Score(0.0)] * len(tasks)
        once = self.collector.collect(tasks, 1, replace(self.sampling, temperature=0.0), f"{key}/greedy")
        groups, greedy = await asyncio.gather(sampled, once)
        return groups, [_baseline(g, group) for g, group in zip(greedy, groups, strict=True)]

    def _stop_if_broken(self, groups: list[Group], step: int) -> None:
        count, total = sum(failures(groups).values()), sum(len(g.trajectories) for g in groups)
        if count > self.cfg.agent.max_failure_rate * total or count == total:
            raise TooManyFailures(
                f"{count} of {total} trajectories failed in step {step + 1}; most often {first_failure(groups)}"
            )


def check_versions(groups: Sequence[Group], version: int) -> None:
    """Refuse groups in which a completion that would be trained on was sampled by another version."""
    for trajectory in (t for group in groups for t in group.trajectories):
        for turn in trajectory.turns:
            if turn.trainable and turn.completion.version != version:
                raise WrongVersion(
                    f"a completion of {trajectory.task_id} was sampled by version {turn.completion.version} of the "
                    f"weights, not by {version}; it is not trained on"
                )


REWARD = ("reward", "acc", "score", "seq_reward", "seq_final_reward")  # names of the whole reward


def has_signal(group: Group, metric: str, by_role: bool = False) -> bool:
    """True when the group's valid trajectories differ in what trains: their reward, a part of it, or that of a role.

    Roles that are not trained do not count.
    """
    valid = [t for t in group.trajectories if t.valid and t.score is not None]
    scores = [t.score for t in valid if t.score is not None]
    if metric not in REWARD:
        return len({s.parts.get(metric, s.total) for s in scores}) > 1
    units = sorted({(t.role if by_role else "", t.question) for a in valid for t in a.turns if t.trainable})
    return len({tuple(earned(s, role, question) for role, question in units or [("", 0)]) for s in scores}) > 1


def _check_metric(metric: str, groups: list[Group]) -> None:
    """Refuse the name of a part that no score has."""
    parts = {name for g in groups for t in g.trajectories if t.score is not None for name in t.score.parts}
    if metric not in REWARD and metric not in parts:
        known = ", ".join(["reward", *sorted(parts)])
        raise BadInput(f"algorithm.filter_groups.metric={metric}: the scores have no such part; there are {known}")


def _baseline(greedy: Group, sampled: Group) -> Score:
    """The greedy rollout's score; where it failed, the mean of the sampled ones, so that the group still counts."""
    attempt = greedy.trajectories[0]
    if attempt.valid and attempt.score is not None:
        return attempt.score
    scores = [t.score for t in sampled.trajectories if t.valid and t.score is not None]
    mean = lambda values: float(np.mean(values)) if values else 0.0
    roles = {name for s in scores for name in s.roles}
    by_role = {name: mean([s.roles.get(name, s.total) for s in scores]) for name in roles}
    return Score(mean([s.total for s in scores]), roles=by_role)
