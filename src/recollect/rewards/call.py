"""Calling a reward: the arguments it names, off the event loop, with a deadline; and making a Score of the result."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

from recollect.offload import in_thread
from recollect.rewards.options import refuse_itself
from recollect.rewards.registry import marks_of
from recollect.types import BadInput, Failure, Group, Reward, Score, Task, Trajectory


def known_names(task: Task, trajectory: Trajectory) -> dict[str, Any]:
    """Everything a reward may ask for by name."""
    return {
        "question": task.question,
        "context": task.context,
        **task.fields,
        "golden_answers": list(task.answers),
        "answer": trajectory.answer,
        "final_response": trajectory.turns[-1].completion.text if trajectory.turns else "",
        "task": task,
        "trajectory": trajectory,
    }


def arguments(reward: Reward, task: Task, trajectory: Trajectory) -> dict[str, Any]:
    """What a reward asks for by name; with ``**kwargs`` it gets everything."""
    return _choose(reward, known_names(task, trajectory))


def batch_arguments(reward: Reward, tasks: Sequence[Task], trajectories: Sequence[Trajectory]) -> dict[str, Any]:
    """The same for a reward of many trajectories: ``trajectories``, ``tasks``, and a list for every other name."""
    rows = [known_names(task, trajectory) for task, trajectory in zip(tasks, trajectories, strict=True)]
    names = dict.fromkeys(name for row in rows for name in row if name not in ("task", "trajectory"))
    lists: dict[str, Any] = {name: [row.get(name) for row in rows] for name in names}
    return _choose(reward, {**lists, "tasks": list(tasks), "trajectories": list(trajectories)})


def check_names(reward: Reward, tasks: Sequence[Task]) -> None:
    """Refuse a reward that asks for a name that no task has, before anything runs. A sum is looked at part by part."""
    found = Task("", "", fields={name: None for task in tasks for name in task.fields})
    for part in [part for _, _, part in getattr(reward, "parts", ())] or [reward]:
        try:
            if marks_of(part).level == "trajectory":
                arguments(part, found, Trajectory("", 0))
            else:
                batch_arguments(part, [found], [Trajectory("", 0)])
        except ValueError as error:
            raise BadInput(f"agent.reward_name: {error}") from None


def _choose(reward: Reward, known: Mapping[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(reward).parameters
    wanted = {n: p for n, p in parameters.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
    missing = [name for name, p in wanted.items() if name not in known and p.default is p.empty]
    if missing:
        raise ValueError(f"the reward wants {missing[0]}; there are {', '.join(known)}")
    if len(wanted) < len(parameters) and any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return dict(known)
    refuse_itself(reward, "the reward")
    return {name: known[name] for name in wanted if name in known and not _is_option(reward, name)}


def _is_option(reward: Reward, name: str) -> bool:
    """Whether the name was already bound, by an option of ``agent.reward_name``."""
    return name in (getattr(reward, "keywords", None) or {})


async def call(
    reward: Reward, task: Task, trajectory: Trajectory, plain: bool = False, timeout: float | None = None
) -> Score:
    """The score of a trajectory. ``plain`` allows a function that is marked ``inline`` to run in the event loop."""
    if marks_of(reward).level != "trajectory":
        raise ValueError("this reward scores many trajectories at once; it is called with call_batch")
    async with asyncio.timeout(timeout):
        return as_score(await _run(reward, arguments(reward, task, trajectory), plain))


async def call_batch(
    reward: Reward, tasks: Sequence[Task], trajectories: Sequence[Trajectory], timeout: float | None = None
) -> list[Score]:
    """The scores of many trajectories, ``tasks[i]`` being the task of ``trajectories[i]``.

    A reward of the level ``batch`` is called once, one of ``group`` once for every task, any other for each trajectory.
    """
    async with asyncio.timeout(timeout):
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
    """A score; what is none is not finite, so that its own trajectory fails and the others do not."""
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
        scores = await call_batch(reward, [task for task, _ in pairs], [t for _, t in pairs], timeout)
    except Exception as error:
        said = f"no reward within {timeout:g} s" if isinstance(error, TimeoutError) and timeout else str(error)
        for _, trajectory in pairs:
            trajectory.failure, trajectory.stop = Failure("reward", f"{type(error).__name__}: {said}"), "failed"
        return
    for (_, trajectory), score in zip(pairs, scores, strict=True):
        if math.isfinite(score.total):
            trajectory.score = score
        else:
            trajectory.failure = Failure("reward", "the reward of this trajectory is not a finite number")
            trajectory.stop = "failed"


async def _run(reward: Reward, given: Mapping[str, Any], plain: bool) -> Any:
    unmarked = plain and not hasattr(reward, "__reward__")
    if inspect.iscoroutinefunction(reward) or unmarked or (plain and marks_of(reward).inline):
        value = reward(**given)
    else:
        value = await in_thread(reward, given)
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
