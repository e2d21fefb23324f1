"""Instances of stateful tools: one for each trajectory, from a bounded pool, reset between trajectories."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from recollect.runtime.threads import Slots
from recollect.runtime.work_place import compute
from recollect.tools.tool_definition import Tool
from recollect.types import Task

RELEASE_S = 10.0  # seconds that reset() and close() may take


async def run(function: Callable[..., Any], /, **given: Any) -> Any:
    """Call a function, plain (off the event loop) or async."""
    if inspect.iscoroutinefunction(function):
        return await function(**given)
    value = await compute(function, given)
    return await value if inspect.isawaitable(value) else value


@dataclass
class Instance:
    """A stateful tool in use."""

    value: Any
    dirty: bool = False  # a call was left behind in it, so nobody else may have it
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)  # one call at a time


class Instances:
    """The pool of one tool."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        self._slots = Slots(tool.pool)
        self._idle: list[Any] = []
        names = list(inspect.signature(tool.run).parameters)
        self._takes_task = "task" in names

    @property
    def bounded(self) -> bool:
        """True when a trajectory may have to wait for an instance."""
        return self._tool.pool is not None

    @asynccontextmanager
    async def lend(self, task: Task) -> AsyncIterator[Instance]:
        """An instance for one trajectory, given back whatever happens."""
        async with self._slots.one():
            instance = Instance(await self._take(task))
            try:
                yield instance
            finally:
                await self._give_back(instance)

    async def _take(self, task: Task) -> Any:
        if self._takes_task:
            return await run(self._tool.run, task=task)
        return self._idle.pop() if self._idle else await run(self._tool.run)

    async def _give_back(self, instance: Instance) -> None:
        """Reset it for the next trajectory, or close it when it cannot be used again."""
        reset = getattr(instance.value, "reset", None)
        if reset is not None and not instance.dirty and not self._takes_task:
            try:
                async with asyncio.timeout(RELEASE_S):
                    await run(reset)
                self._idle.append(instance.value)
                return
            except Exception:
                pass  # then it is not fit to be used again
        await _close(instance.value)

    async def close(self) -> None:
        """Close the idle instances."""
        while self._idle:
            await _close(self._idle.pop())


async def _close(value: Any) -> None:
    close = getattr(value, "close", None)
    if close is None:
        return
    try:
        async with asyncio.timeout(RELEASE_S):
            await run(close)
    except Exception:
        return  # nothing more can be done for it
