"""The function behind ``agent.reward_name``: a reward itself, or a sum of several that is called like one."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from functools import partial
from inspect import signature

from recollect.config import Config
from recollect.config.reward_terms import KEY, Term, parse
from recollect.rewards.convention import refuse_unclear
from recollect.rewards.decorator import REWARDS, Marks, RewardLevel, marks_of
from recollect.rewards.options import check_options
from recollect.rewards.scoring import call, call_batch
from recollect.runtime.plugins import find
from recollect.types import BadInput, Reward, Score, Task, Trajectory

_LEVELS: tuple[RewardLevel, ...] = ("trajectory", "group", "batch")


def find_reward(text: str, cfg: Config | None = None) -> Reward:
    """The reward behind ``agent.reward_name``: the function itself, or a sum that is called like one.

    A function with a parameter ``config: Config`` is given the run's settings.
    """
    terms = parse(text)
    parts = [_function(term, cfg or Config()) for term in terms]
    if len(terms) == 1 and terms[0].weight == 1:
        return parts[0]
    labels = [t.name.rpartition(":")[2] for t in terms]
    labels = [label if labels.count(label) == 1 else str(i) + "/" + label for i, label in enumerate(labels)]
    return Weighted([(label, t.weight, part) for label, t, part in zip(labels, terms, parts, strict=True)])


def _function(term: Term, cfg: Config) -> Reward:
    function = find(term.name, REWARDS, KEY)
    refuse_unclear(function, f"{KEY}={term.name}")
    taken = signature(function).parameters
    settings = {"config": cfg} if "config" in taken and taken["config"].annotation in (Config, "Config") else {}
    if not term.options and not settings:
        return function
    for name, _ in term.options:
        if name not in taken or taken[name].default is taken[name].empty:
            known = [n for n, p in taken.items() if p.default is not p.empty]
            raise BadInput(f"{KEY}: {term.name} has no option {name}; it has {', '.join(known) or 'none'}")
    check_options(function, dict(term.options), f"{KEY}: {term.name}")
    bound = partial(function, **settings, **dict(term.options))
    bound.__reward__ = marks_of(function)  # type: ignore[attr-defined]
    return bound


class Weighted:
    """A sum of rewards. Each is a part of the score, without its weight; metrics of a part are named under it."""

    def __init__(self, parts: Sequence[tuple[str, float, Reward]]) -> None:
        self.parts = list(parts)
        level = max((marks_of(part).level for _, _, part in self.parts), key=_LEVELS.index)
        self.__reward__ = Marks(level, inline=True)

    async def __call__(self, task: Task, trajectory: Trajectory) -> Score:
        return self._sum(await asyncio.gather(*(call(p, task, trajectory, plain=True) for _, _, p in self.parts)))

    async def call_batch(self, tasks: Sequence[Task], trajectories: Sequence[Trajectory]) -> list[Score]:
        """The sums of many trajectories, where a part looks at all of them."""
        made = await asyncio.gather(*(call_batch(p, tasks, trajectories) for _, _, p in self.parts))
        return [self._sum(scores) for scores in zip(*made, strict=True)]

    def _sum(self, scores: Sequence[Score]) -> Score:
        parts: dict[str, float] = {}
        for (label, _, _), score in zip(self.parts, scores, strict=True):
            parts |= {label: score.total, **{f"{label}/{k}": v for k, v in score.parts.items()}}
        return Score(
            self._add(s.total for s in scores),
            parts,
            {role: self._add(s.roles.get(role, s.total) for s in scores) for s in scores for role in s.roles},
            tuple(self._add(_of_question(s, i) for s in scores) for i in range(max(len(s.questions) for s in scores))),
        )

    def _add(self, values: Iterable[float]) -> float:
        return math.fsum(weight * value for (_, weight, _), value in zip(self.parts, values, strict=True))


def _of_question(score: Score, i: int) -> float:
    return score.questions[i] if i < len(score.questions) else score.total
