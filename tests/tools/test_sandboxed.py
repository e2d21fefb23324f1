"""The tools that share a trajectory's sandbox."""

from __future__ import annotations

import asyncio

import pytest

from recollect.tools import OpenTools, Toolbox, ToolResult
from recollect.types import Task, Trajectory
from tests.tools.conftest import TASK, call, one, with_tools


async def texts(mine: OpenTools, *calls) -> list[str]:  # type: ignore[no-untyped-def]
    return [(await mine.call(c)).text for c in calls]


def test_they_share_files_and_state_within_a_trajectory_only(sandboxed: Toolbox) -> None:
    async def work(mine: OpenTools) -> list[str]:
        return await texts(
            mine,
            call("python_executor", code="x = 6"),
            call("python_executor", code="open('n.txt', 'w').write(str(x * 7))\nx"),
            call("bash", command="cat n.txt && echo && pwd"),
            call("write_file", path="src/a.py", text="def f():\n    return 1\n"),
            call("edit_file", path="src/a.py", old="return 1", new="return 2"),
            call("python_executor", code="import sys; sys.path.append('src'); import a; print(a.f())"),
            call("list_files"),
            call("grep", pattern=r"ret\w+ \d"),
            call("read_file", path="src/a.py", start=2, lines=1),
        )

    assert with_tools(sandboxed, work) == [
        "(no output)",
        "6",
        "42\n/workspace",
        "wrote 22 characters to src/a.py",
        "replaced 1 occurrence in src/a.py",
        "2",
        "n.txt (2 bytes)\nsrc/a.py (22 bytes)",
        "src/a.py:2:     return 2",
        "    return 2\n(lines 2 to 2 of 2)",
    ]
    assert one(sandboxed, "list_files").text == "(no files)"
    assert "NameError" in one(sandboxed, "python_executor", code="x").text


def test_errors_are_readable(sandboxed: Toolbox) -> None:
    async def work(mine: OpenTools) -> list[str]:
        return await texts(
            mine,
            call("read_file", path="nothing.txt"),
            call("write_file", path="/etc/passwd", text="x"),
            call("write_file", path="a", text="b b"),
            call("edit_file", path="a", old="b", new="c"),
            call("edit_file", path="a", old="z", new="c"),
            call("grep", pattern="("),
            call("list_files", path="/no"),
            call("bash", command="echo out; echo err >&2; exit 3"),
            call("bash", command="exit 3"),
            call("python_executor", code="print('before')\n1 / 0"),
        )

    found = with_tools(sandboxed, work)
    assert found[0] == "Error: No such file or directory: nothing.txt"
    assert found[1].startswith("Error: ")
    assert "occurs 2 times" in found[3]
    assert "does not occur" in found[4]
    assert found[5].startswith("Error: ")
    assert found[6] == "Error: no folder /no"
    assert found[7] == "out\nerr"
    assert found[8] == "exit status 3"
    assert found[9].startswith("before\nTraceback (most recent call last):\n")
    assert found[9].endswith("ZeroDivisionError: division by zero")


def test_a_limit_is_an_observation_and_the_trajectory_goes_on(sandboxed: Toolbox) -> None:
    async def work(mine: OpenTools) -> list[ToolResult]:
        calls = [
            call("python_executor", code="y"),
            call("bash", command="yes"),
            call("bash", command="echo fine"),
        ]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sandboxed.cfg.sandbox, "timeout_s", 1.0)
            late = await mine.call(call("python_executor", code="y = 1\nwhile True: pass"))
        return [late, *[await mine.call(c) for c in calls]]

    late, after, flood, fine = with_tools(sandboxed, work)
    assert late.outcome == "timeout"
    assert "time limit of 1 seconds" in late.text
    assert after.text == "1"
    assert "output limit of 1024 KB" in flood.text
    assert len(flood.text) <= 8000
    assert fine == ToolResult("fine")


def test_calls_of_one_turn_take_turns_in_the_sandbox(sandboxed: Toolbox) -> None:
    calls = [call("python_executor", code=f"n = {i} if {i} == 0 else n + 1\nn") for i in range(6)]
    results = with_tools(sandboxed, lambda mine: mine.call_all(calls))
    assert [r.text for r in results] == list("012345")


def test_a_lost_sandbox_is_opened_again(sandboxed: Toolbox) -> None:
    async def work(mine: OpenTools) -> str:
        (await mine.session()).close()
        return (await mine.call(call("bash", command="echo again"))).text

    assert with_tools(sandboxed, work) == "again"


def test_the_document_of_the_task(sandboxed: Toolbox) -> None:
    async def work(mine: OpenTools) -> list[str]:
        return await texts(
            mine,
            call("load_context"),
            call("python_executor", code="len(context), context == open('context.txt').read()"),
            call("bash", command="wc -l < context.txt"),
        )

    told, length, lines = with_tools(sandboxed, work)
    assert told.startswith(f"context.txt and the variable context hold {len(TASK.context)} characters")
    assert length == f"({len(TASK.context)}, True)"
    assert lines == "200"

    async def without() -> str:
        async with sandboxed.open(Task("u", "q"), Trajectory("u", 0)) as mine:
            return (await mine.call(call("load_context"))).text

    assert asyncio.run(without()) == "This task has no document."


def test_code_interpreter_is_the_same_tool() -> None:
    box = Toolbox(["code_interpreter"])
    assert one(box, "code_interpreter", code="6 * 7").text == "42"
    asyncio.run(box.close())
