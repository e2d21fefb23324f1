"""Calling a reward: the arguments it names, off the event loop, with a deadline; and making a Score of the result."""

from __future__ import annotations

import asyncio
import inspect
import math
import threading
from collections.abc import Mapping
from numbers import Real
from typing import Any

from recollect.types import Reward, Score, Task, Trajectory


def arguments(reward: Reward, task: Task, trajectory: Trajectory) -> dict[str, Any]:
    """What a reward asks for by name: answer, task, trajectory, or any field of the data row."""
    known: dict[str, Any] = {**task.fields, "answer": trajectory.answer, "task": task, "trajectory": trajectory}
    parameters = inspect.signature(reward).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return known
    missing = [name for name, p in parameters.items() if name not in known and p.default is p.empty]
    if missing:
        raise ValueError(f"the reward wants {missing[0]}; there are {', '.join(known)}")
    return {name: known[name] for name in parameters if name in known}


async def in_thread(reward: Reward, given: Mapping[str, Any]) -> Any:
    """Call a plain function in a thread of its own; one that hangs is left behind and cannot hold up the program."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if not future.done():
            future.set_result(value) if error is None else future.set_exception(error)

    def work() -> None:
        try:
            value, error = reward(**given), None
        except Exception as caught:
            value, error = None, caught
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=work, daemon=True).start()
    return await future


async def call(reward: Reward, task: Task, trajectory: Trajectory, plain: bool) -> Score:
    """The score of a trajectory. ``plain`` promises a quick function that may run in the event loop."""
    given = arguments(reward, task, trajectory)
    if plain or inspect.iscoroutinefunction(reward):
        value = reward(**given)
    else:
        value = await in_thread(reward, given)
    return as_score(await value if inspect.isawaitable(value) else value)


def as_score(value: Any) -> Score:
    """A Score from what a reward returned: a number, a bool, a dict with ``reward`` and named parts, or a Score."""
    if isinstance(value, Score):
        total, parts = value.total, value.parts
    elif isinstance(value, Mapping):
        if "reward" not in value:
            raise ValueError("a reward returned a dict without 'reward'")
        total, parts = value["reward"], {k: v for k, v in value.items() if k != "reward"}
    else:
        total, parts = value, {}
    score = Score(float(total), {str(k): float(v) for k, v in parts.items() if isinstance(v, Real)})
    if not math.isfinite(score.total):
        raise ValueError(f"the reward is {score.total}")
    return score
