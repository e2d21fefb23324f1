"""Collecting trajectories: many agents at once, each with a deadline, and failures that stay their own.

A timeout or a crash marks that trajectory with a typed failure. Its siblings go on; it is excluded from statistics and
counted in the metrics.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from recollect.agents import AGENTS
from recollect.config import Config
from recollect.plugins import find
from recollect.rewards import REWARDS
from recollect.session import Binding, Session
from recollect.types import Failure, FailureKind, Group, Reward, Sampling, Score, Task, Trajectory

AgentLoop = Callable[[Task, Session, Config], Awaitable[str]]


class Collector:
    """An agent, the policies that play its roles, and its reward, ready to attempt tasks."""

    def __init__(
        self, cfg: Config, roles: Mapping[str, Binding], on_done: Callable[[Trajectory], None] | None = None
    ) -> None:
        self.cfg, self.roles = cfg, dict(roles)
        self.agent: AgentLoop = find(cfg.agent.agent_type, AGENTS, "agent.agent_type")
        self.reward: Reward = find(cfg.agent.reward_name, REWARDS, "agent.reward_name")
        self.builtin_reward = cfg.agent.reward_name in REWARDS
        self.on_done = on_done or (lambda trajectory: None)

    async def collect(self, tasks: Sequence[Task], n: int, sampling: Sampling, key: str) -> list[Group]:
        """``n`` attempts at each task. ``key`` names this collection; sampling noise is derived from it."""
        gate = asyncio.Semaphore(self.cfg.agent.max_concurrency)
        groups = [Group(task, [Trajectory(task.id, i) for i in range(n)]) for task in tasks]
        attempts = [
            self._attempt(group.task, trajectory, sampling, f"{key}/{group.task.id}/{trajectory.sample}", gate)
            for group in groups
            for trajectory in group.trajectories
        ]
        await asyncio.gather(*attempts)
        return groups

    async def _attempt(
        self, task: Task, trajectory: Trajectory, sampling: Sampling, key: str, gate: asyncio.Semaphore
    ) -> None:
        session = Session(task, trajectory, self.roles, sampling, key)
        async with gate:
            try:
                async with asyncio.timeout(self.cfg.agent.timeout_s):
                    trajectory.answer = str(await self.agent(task, session, self.cfg))
                trajectory.stop = trajectory.stop or "answered"
            except TimeoutError:
                trajectory.failure = Failure("timeout", f"no answer within {self.cfg.agent.timeout_s:g} s")
            except Exception as error:
                kind: FailureKind = "policy" if session.generating else "agent"
                trajectory.failure = Failure(kind, f"{type(error).__name__}: {error}")
        if trajectory.failure is None:
            await self._score(task, trajectory)
        else:
            trajectory.stop = "failed"
        self.on_done(trajectory)

    async def _score(self, task: Task, trajectory: Trajectory) -> None:
        try:
            async with asyncio.timeout(self.cfg.agent.reward_timeout_s):
                value = await self._call_reward(task, trajectory)
            trajectory.score = as_score(value)
        except TimeoutError:
            trajectory.failure = Failure("reward", f"no reward within {self.cfg.agent.reward_timeout_s:g} s")
        except Exception as error:
            trajectory.failure = Failure("reward", f"{type(error).__name__}: {error}")

    async def _call_reward(self, task: Task, trajectory: Trajectory) -> Any:
        known: dict[str, Any] = {
            **task.fields,
            "answer": trajectory.answer,
            "task": task,
            "trajectory": trajectory,
        }
        parameters = inspect.signature(self.reward).parameters
        if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            arguments = known
        else:
            missing = [name for name, p in parameters.items() if name not in known and p.default is p.empty]
            if missing:
                raise ValueError(f"the reward wants {missing[0]}; there are {', '.join(known)}")
            arguments = {name: known[name] for name in parameters if name in known}
        if self.builtin_reward:
            return self.reward(**arguments)
        if inspect.iscoroutinefunction(self.reward):
            return await self.reward(**arguments)
        return await asyncio.to_thread(self.reward, **arguments)


def as_score(value: Any) -> Score:
    """A Score from what a reward returned: a number, a bool, a dict with ``reward`` and named parts, or a Score."""
    if isinstance(value, Score):
        score = value
    elif isinstance(value, Mapping):
        if "reward" not in value:
            raise ValueError("a reward returned a dict without 'reward'")
        parts = {k: float(v) for k, v in value.items() if k != "reward" and isinstance(v, int | float)}
        score = Score(float(value["reward"]), parts)
    else:
        score = Score(float(value))
    if not math.isfinite(score.total):
        raise ValueError(f"the reward is {score.total}")
    return score


def failures(groups: Sequence[Group]) -> Counter[str]:
    """How many trajectories failed, by kind."""
    return Counter(t.failure.kind for g in groups for t in g.trajectories if t.failure is not None)


def first_failure(groups: Sequence[Group]) -> str:
    """One line about the most common kind of failure."""
    kind = failures(groups).most_common(1)[0][0]
    example = next(
        t.failure.message for g in groups for t in g.trajectories if t.failure is not None and t.failure.kind == kind
    )
    return f"{kind}: {example}"
