"""The reward for programs: the task's tests are run in the sandbox."""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Coroutine
from typing import Any

from recollect import sandbox
from recollect.rewards.code_tests import AssertionScript, InOut, read_tests
from recollect.rewards.decorator import reward
from recollect.runtime.deadline import seconds_left
from recollect.types import Score, Task, Trajectory

AT_ONCE = 4  # programs of one answer that run side by side
_FENCED = re.compile(r"^[ \t]*```[ \t]*(\w*)[^\n]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)


async def run_python(code: str, stdin: str = "", timeout: float = 10.0) -> tuple[int, str, str]:
    """(return code, stdout, stderr) of a program in the sandbox."""
    return await sandbox.run_python(code, stdin=stdin, timeout=timeout)


@reward
async def code_reward(
    answer: str, task: Task, trajectory: Trajectory, partial: bool = True, timeout: float = 10.0
) -> Score:
    """The share of the task's tests that the program passes; with ``partial=false`` 1 for all of them, else 0."""
    tests = read_tests(task.fields)
    code = program(answer, trajectory)
    if code is None:
        return Score(0.0, {"passed": 0.0, "tests": float(tests.count)})
    gate = asyncio.Semaphore(AT_ONCE)

    async def run(text: str, stdin: str) -> tuple[int, str]:
        async with gate:
            status, out, _ = await run_python(text, stdin, timeout)
        return status, out

    async def check(test: InOut | AssertionScript) -> int:
        return test.passed(*await run(*test.program(code)))

    passed = sum(await _within(seconds_left(), [check(test) for test in tests.parts]))
    share = passed / tests.count
    return Score(share if partial else float(passed == tests.count), {"passed": share, "tests": float(tests.count)})


async def _within(seconds: float | None, checks: list[Coroutine[Any, Any, int]]) -> list[int]:
    """What the checks give that end in time; one that does not is not passed."""
    tasks = [asyncio.ensure_future(check) for check in checks]
    try:
        done, _ = await asyncio.wait(tasks, timeout=seconds)
        return [task.result() for task in done]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def program(answer: str, trajectory: Trajectory) -> str | None:
    """The last fenced program of the answer, the answer itself if it is one, or else the last of the last turns."""
    found = _last_fenced(answer)
    if found is None and answer.strip() and "```" not in answer and _parses(answer):
        found = answer
    for turn in reversed(trajectory.turns):
        found = found if found is not None else _last_fenced(turn.completion.text)
    return found if found is not None and found.strip() else None


def _last_fenced(text: str) -> str | None:
    blocks = [m.group(2) for m in _FENCED.finditer(text) if m.group(1).lower() in ("", "python", "py", "python3")]
    return blocks[-1] if blocks else None


def _parses(text: str) -> bool:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(not isinstance(node, ast.Expr) or isinstance(node.value, ast.Call) for node in tree.body)
