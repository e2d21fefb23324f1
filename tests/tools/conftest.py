"""A task, a trajectory, and running calls in an open toolbox."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from recollect.tools import OpenTools, Toolbox, ToolResult
from recollect.types import Task, ToolCall, Trajectory
from tests.waiting import LONG

TASK = Task("t", "question", context="first line\nsecond line\n" * 100)


def call(name: str, /, **arguments: Any) -> ToolCall:
    return ToolCall(name, arguments)


def with_tools(box: Toolbox, work: Callable[[OpenTools], Awaitable[Any]]) -> Any:
    async def go() -> Any:
        async with box.open(TASK, Trajectory("t", 0)) as mine:
            return await work(mine)

    return asyncio.run(go())


def one(box: Toolbox, name: str, /, **arguments: Any) -> ToolResult:
    return with_tools(box, lambda mine: mine.call(call(name, **arguments)))  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def sandboxed():  # type: ignore[no-untyped-def]
    names = ["python_executor", "bash", "read_file", "write_file", "edit_file", "list_files", "grep", "load_context"]
    box = Toolbox(names)
    box.cfg.sandbox.timeout_s = LONG
    yield box
    asyncio.run(box.close())
