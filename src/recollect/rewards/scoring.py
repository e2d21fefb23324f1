"""Calling a reward: off the event loop, with a deadline; and making a Score of the result."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

from recollect.rewards.arguments import arguments, batch_arguments
from recollect.rewards.decorator import marks_of
from recollect.runtime.deadline import within
from recollect.runtime.error_text import named_error
from recollect.runtime.secrets import redacted
from recollect.runtime.threads import contained
from recollect.runtime.work_place import compute
from recollect.types import Failure, Group, Reward, Score, Task, Trajectory


async def call(
    reward: Reward, task: Task, trajectory: Trajectory, plain: bool = False, timeout: float | None = None
) -> Score:
    """The score of a trajectory. ``plain`` allows a function that is marked ``inline`` to run in the event loop."""
    if marks_of(reward).level != "trajectory":
        raise ValueError("this reward scores many trajectories at once; it is called with call_batch")
    async with within(timeout):
        return as_score(await _run(reward, arguments(reward, task, trajectory), plain))


async def call_batch(
    reward: Reward, tasks: Sequence[Task], trajectories: Sequence[Trajectory], timeout: float | None = None
) -> list[Score]:
    """The scores of many trajectories, ``tasks[i]`` being the task of ``trajectories[i]``.

    A reward of the level ``batch`` is called once, one of ``group`` once for every task, any other for each trajectory.
    """
    async with within(timeout):
        together = getattr(reward, "call_batch", None)
        if together is not None:  # a weighted sum, whose parts may be of different levels
            return await together(tasks, trajectories)
        level = marks_of(reward).level
        if level == "trajectory":
            calls = [call(reward, t, x, plain=True) for t, x in zip(tasks, trajectories, strict=True)]
            each = await asyncio.gather(*calls, return_exceptions=True)
            for broken in (s for s in each if isinstance(s, BaseException) and not isinstance(s, Exception)):
                raise broken
            return [s if isinstance(s, Score) else Score(math.nan) for s in each]
        split = _by_task(tasks) if level == "group" else [list(range(len(tasks)))]
        made = await asyncio.gather(
            *(_call_together(reward, [tasks[i] for i in s], [trajectories[i] for i in s]) for s in split if s)
        )
        scores = {
            i: score
            for places, part in zip([s for s in split if s], made, strict=True)
            for i, score in zip(places, part, strict=True)
        }
        return [scores[i] for i in range(len(tasks))]


async def _call_together(reward: Reward, tasks: Sequence[Task], trajectories: Sequence[Trajectory]) -> list[Score]:
    values = await _run(reward, batch_arguments(reward, tasks, trajectories), True)
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        raise ValueError(f"a reward of many trajectories returned a {type(values).__name__}, not a list")
    values = list(values)
    if len(values) != len(trajectories):
        raise ValueError(f"the reward returned {len(values)} values for {len(trajectories)} trajectories")
    return [_score_or_none(value) for value in values]


def _score_or_none(value: Any) -> Score:
    """A score; NaN for a value that is not one, so that only its own trajectory fails."""
    try:
        return as_score(value)
    except (TypeError, ValueError):
        return Score(math.nan)


async def score_groups(reward: Reward, groups: Sequence[Group], timeout: float | None = None) -> None:
    """Score what a reward of the level ``group`` or ``batch`` has to see together; failed trajectories are left out.

    A group's own failure stays its own; a failure of a reward of the whole batch is every trajectory's.
    """
    one_by_one = marks_of(reward).level == "group"
    sets = [[g] for g in groups] if one_by_one else [list(groups)]
    await asyncio.gather(*(_score_set(reward, part, timeout) for part in sets))


async def _score_set(reward: Reward, groups: Sequence[Group], timeout: float | None) -> None:
    pairs = [(g.task, t) for g in groups for t in g.trajectories if t.failure is None]
    if not pairs:
        return
    try:
        with contained():
            scores = await call_batch(reward, [task for task, _ in pairs], [t for _, t in pairs], timeout)
    except Exception as error:
        late = isinstance(error, TimeoutError) and timeout
        said = f"TimeoutError: no reward within {timeout:g} s" if late else redacted(named_error(error))
        for _, trajectory in pairs:
            trajectory.failure = Failure("reward", said)
            trajectory.stop = "failed"
        return
    for (_, trajectory), score in zip(pairs, scores, strict=True):
        if math.isfinite(score.total):
            trajectory.score = score
        else:
            trajectory.failure = Failure("reward", "the reward of this trajectory is not a finite number")
            trajectory.stop = "failed"


async def _run(reward: Reward, given: Mapping[str, Any], plain: bool) -> Any:
    with contained():
        if inspect.iscoroutinefunction(reward) or (plain and marks_of(reward).inline):
            value = reward(**given)
        else:
            value = await compute(reward, given)
        return await value if inspect.isawaitable(value) else value


def _by_task(tasks: Sequence[Task]) -> list[list[int]]:
    places: dict[str, list[int]] = {}
    for i, task in enumerate(tasks):
        places.setdefault(task.id, []).append(i)
    return list(places.values())


def as_score(value: Any) -> Score:
    """A Score from what a reward returned: a number, a bool, a dict with ``reward`` and named parts, or a Score."""
    roles: Mapping[str, Any] = {}
    questions: Sequence[Any] = ()
    if isinstance(value, Score):
        total, parts, roles, questions = value.total, value.parts, value.roles, value.questions
    elif isinstance(value, Mapping):
        if "reward" not in value:
            raise ValueError("a reward returned a dict without 'reward'")
        total, parts = value["reward"], {k: v for k, v in value.items() if k != "reward"}
    else:
        total, parts = value, {}
    numbers = {str(k): float(v) for k, v in parts.items() if isinstance(v, Real)}
    own = {str(k): float(v) for k, v in roles.items()}
    score = Score(float(total), numbers, own, tuple(float(v) for v in questions))
    for number in (score.total, *score.roles.values(), *score.questions):
        if not math.isfinite(number):
            raise ValueError(f"the reward is {number}")
    return score
