"""Whatever a tool does, the trajectory gets an observation; what it borrowed is always given back."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from recollect.config import Config
from recollect.images.image_files import to_url
from recollect.tools import TOOLS, Maker, OpenTools, Toolbox, ToolResult, stop, tool
from recollect.tools.observe import cut
from recollect.types import BadInput, Task, ToolCall, Trajectory
from tests.seeing import pictures
from tests.tools.conftest import TASK, call, one, with_tools
from tests.waiting import LONG


@tool
def add(a: int, b: int = 1) -> int:
    """Add."""
    return a + b


@tool
async def sleepy(seconds: float) -> str:
    """Sleep."""
    await asyncio.sleep(seconds)
    return f"slept {seconds}"


@tool(timeout=0.2)
def stuck() -> None:
    """Never come back."""
    time.sleep(30)


@tool(timeout=0.2)
async def stubborn() -> None:
    """Ignore being cancelled."""
    while True:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            continue


@tool(max_length=200)
def long(length: int) -> str:
    """Much text."""
    return "<" * (length // 2) + ">" * (length - length // 2)


@tool
def crash(kind: str) -> None:
    """Raise."""
    raise {"value": ValueError("no good"), "exit": SystemExit(3), "next": StopIteration(), "key": KeyError("k")}[kind]


@tool
async def crash_async(kind: str) -> None:
    """Raise."""
    raise {"value": ValueError("no good"), "exit": SystemExit(3), "cancel": asyncio.CancelledError()}[kind]


@tool
def finish(text: str) -> ToolResult:
    """Stop."""
    return stop(text, reward=0.5)


@tool
def structure() -> dict[str, Any]:
    """A dict."""
    return {"ä": [1, 2.5, None, True], "at": Path("x")}


@tool
def plot(function: str, self: str = "") -> str:
    """Names that the machinery uses itself."""
    return function + self


@tool
def who(task: Task, trajectory: Trajectory) -> str:
    """Say whose it is."""
    return f"{task.id} {trajectory.sample}"


BOX = Toolbox([add, sleepy, stuck, stubborn, long, crash, crash_async, finish, structure, plot, who])


def test_a_result_is_text_and_json() -> None:
    assert one(BOX, "add", a="2", b=3) == ToolResult("5")
    assert one(BOX, "structure").text == '{"ä": [1, 2.5, null, true], "at": "x"}'
    assert one(BOX, "finish", text="done") == ToolResult("done", stop=True, reward=0.5)
    assert one(BOX, "who").text == "t 0"
    assert one(BOX, "plot", function="sin", self="x").text == "sinx"
    assert add(1, 2) == 3  # still a function


@pytest.mark.parametrize(
    ("made", "outcome", "words"),
    [
        (ToolCall("add", None, error="the JSON ends too early"), "malformed", "the JSON ends too early"),
        (ToolCall("", None), "malformed", "no arguments"),
        (call("ad", a=1), "unknown", "Did you mean add? Tools: add, sleepy"),
        (call("x" * 5000), "unknown", "characters cut"),
        (call("add"), "arguments", "Wrong arguments for add: a is missing. It takes: a, b (optional)."),
        (call("who", task=1), "arguments", "there is no argument task"),
        (call("crash", kind="value"), "exception", "ValueError: no good"),
        (call("crash", kind="exit"), "exception", "SystemExit"),
        (call("crash", kind="next"), "exception", "StopIteration"),
        (call("crash", kind="key"), "exception", "KeyError: 'k'"),
        (call("crash_async", kind="value"), "exception", "ValueError: no good"),
        (call("crash_async", kind="exit"), "exception", "SystemExit"),
        (call("crash_async", kind="cancel"), "exception", "CancelledError"),
        (call("stuck"), "timeout", "stuck did not answer within 0.2 seconds"),
        (call("stubborn"), "timeout", "stubborn did not answer within 0.2 seconds"),
    ],
)
def test_every_failure_is_an_observation_and_a_count(made: ToolCall, outcome: str, words: str) -> None:
    async def go() -> tuple[ToolResult, dict[str, int]]:
        async with BOX.open(TASK, Trajectory("t", 0)) as mine:
            return await mine.call(made), dict(mine.counts)

    loop = asyncio.new_event_loop()  # asyncio.run would wait for the stubborn one
    start = time.monotonic()
    result, counts = loop.run_until_complete(go())
    assert time.monotonic() - start < 20  # those that never answer would take 30
    assert result.outcome == outcome
    assert words in result.text
    assert "Traceback" not in result.text
    assert len(result.text) <= 1000
    assert counts["calls"] == counts[outcome] == 1
    assert counts.get(f"tool/{made.name}", 0) == (made.name in BOX.names)


def test_calls_of_a_turn_run_side_by_side_and_keep_their_order() -> None:
    gate = asyncio.Barrier(2)

    @tool(timeout=LONG)
    async def meet(seconds: float) -> str:
        """Wait for the other."""
        await gate.wait()  # passes only when both are here at once
        await asyncio.sleep(seconds)
        return f"slept {seconds}"

    calls = [call("meet", seconds=0.1), call("nothing"), call("meet", seconds=0.0), call("add", a=1)]
    results = with_tools(Toolbox([add, meet]), lambda mine: mine.call_all(calls))
    assert [r.text for r in (results[0], results[2], results[3])] == ["slept 0.1", "slept 0.0", "2"]
    assert results[1].outcome == "unknown"


def test_a_long_observation_is_cut_in_the_middle() -> None:
    text = one(BOX, "long", length=10_000_000).text
    assert len(text) == 200
    assert text.startswith("<<<")
    assert text.endswith(">>>")
    missing = int(text.split("[")[1].split(" ")[0])
    assert text.count("<") + text.count(">") + missing == 10_000_000
    assert one(BOX, "long", length=200).text == "<" * 100 + ">" * 100


@pytest.mark.parametrize("length", [0, 1, 30, 31, 99, 100, 101, 12345])
@pytest.mark.parametrize("most", [1, 20, 100, 1000])
def test_cut_says_exactly_what_is_missing(length: int, most: int) -> None:
    text = "x" * length
    shown = cut(text, most)
    assert len(shown) <= most or length <= most
    if "[" in shown:
        assert shown.count("x") + int(shown.split("[")[1].split(" ")[0]) == length


def test_cancellation_passes_through() -> None:
    async def work(mine: OpenTools) -> str:
        try:
            async with asyncio.timeout(0.1):
                await mine.call_all([call("sleepy", seconds=30), call("add", a=1)])
        except TimeoutError:
            return "cancelled"
        return "not"

    assert with_tools(BOX, work) == "cancelled"


def test_plain_functions_do_not_block_the_loop() -> None:
    gate = threading.Barrier(4, timeout=LONG)

    @tool(timeout=LONG)
    def meet() -> str:
        """Wait in a thread."""
        gate.wait()  # passes only when four are here at once
        return threading.current_thread().name

    results = with_tools(Toolbox([meet]), lambda mine: mine.call_all([call("meet")] * 20))
    assert [r.outcome for r in results] == ["ok"] * 20
    assert "MainThread" not in {r.text for r in results}


def test_a_pool_bounds_the_calls_of_a_function() -> None:
    running, most = 0, 0

    @tool(pool=3)
    async def work() -> None:
        """Count."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.02)
        running -= 1

    box = Toolbox([work])
    for _ in range(2):  # one event loop after another, as a run has one for each step
        with_tools(box, lambda mine: mine.call_all([call("work")] * 12))
    assert most == 3


def stateful(log: list[str], **options: Any) -> Any:
    made = 0

    class Counter:
        """Counts."""

        def __init__(self) -> None:
            nonlocal made
            made += 1
            self.id, self.value = made, 0
            log.append(f"make {self.id}")

        def __call__(self, by: int) -> str:
            """Add."""
            if by < 0:
                raise ValueError("negative")
            if by > 100:
                time.sleep(by)
            self.value += by
            return f"{self.id}:{self.value}"

        def reset(self) -> None:
            log.append(f"reset {self.id}")
            self.value = 0

        def close(self) -> None:
            log.append(f"close {self.id}")

    return tool(name="counter", **options)(Counter)


async def two_trajectories(box: Toolbox) -> list[str]:
    async with box.open(TASK, Trajectory("t", 0)) as a, box.open(TASK, Trajectory("t", 1)) as b:
        calls = [(a, 1), (b, 10), (a, 2), (b, 20)]
        return [(await mine.call(call("counter", by=by))).text for mine, by in calls]


def test_each_trajectory_has_its_own_instance_and_they_are_reused() -> None:
    log: list[str] = []
    box = Toolbox([stateful(log)])
    assert asyncio.run(two_trajectories(box)) == ["1:1", "2:10", "1:3", "2:30"]
    assert [text.split(":")[1] for text in asyncio.run(two_trajectories(box))] == ["1", "10", "3", "30"]
    asyncio.run(box.close())
    assert sorted(log) == ["close 1", "close 2", "make 1", "make 2", "reset 1", "reset 1", "reset 2", "reset 2"]


def test_a_global_tool_is_shared_and_closed_at_the_end() -> None:
    log: list[str] = []
    box = Toolbox([stateful(log, scope="global")])
    assert asyncio.run(two_trajectories(box)) == ["1:1", "1:11", "1:13", "1:33"]
    asyncio.run(box.close())
    assert log == ["make 1", "close 1"]


def test_instances_come_back_after_failure_cancellation_and_timeout() -> None:
    log: list[str] = []
    box = Toolbox([stateful(log, pool=1, timeout=1.0)])

    async def fail(mine: OpenTools) -> None:
        assert (await mine.call(call("counter", by=-1))).outcome == "exception"
        raise RuntimeError("the agent failed")

    with pytest.raises(RuntimeError, match="the agent failed"):
        with_tools(box, fail)
    assert log == ["make 1", "reset 1"]

    async def cancelled() -> None:
        async with asyncio.timeout(0.1), box.open(TASK, Trajectory("t", 0)):
            await asyncio.sleep(30)

    with pytest.raises(TimeoutError):
        asyncio.run(cancelled())
    assert log == ["make 1", "reset 1", "reset 1"]
    assert one(box, "counter", by=200).outcome == "timeout"  # a thread is still in it, so nobody else may have it
    assert log[3:] == ["close 1"]
    assert one(box, "counter", by=7).text == "2:7"


def test_a_pool_bounds_the_trajectories_that_hold_an_instance() -> None:
    box = Toolbox([stateful([], pool=2)])
    open_now = most = 0

    async def trajectory(i: int) -> str:
        nonlocal open_now, most
        async with box.open(TASK, Trajectory("t", i)) as mine:
            open_now += 1
            most = max(most, open_now)
            text = (await mine.call(call("counter", by=1))).text
            open_now -= 1
            return text

    async def go() -> list[str]:
        return await asyncio.gather(*map(trajectory, range(8)))

    texts = asyncio.run(go())
    assert most == 2
    assert {text.split(":")[1] for text in texts} == {"1"}  # always reset


def test_calls_to_one_instance_take_turns() -> None:
    box = Toolbox([stateful([])])
    results = with_tools(box, lambda mine: mine.call_all([call("counter", by=1)] * 30))
    assert [r.text for r in results] == [f"1:{i}" for i in range(1, 31)]


def test_an_instance_may_be_made_for_its_task() -> None:
    @tool
    class Ask:
        """Ask the task."""

        def __init__(self, task: Task) -> None:
            self.task = task

        async def __call__(self) -> str:
            """Ask."""
            return self.task.question

    assert one(Toolbox([Ask]), "Ask").text == "question"


def test_names_are_resolved_and_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def double(x: int) -> int:\n    '''Double.'''\n    return 2 * x\nnot_one = 3\n")
    box = Toolbox(["calculator", "answer", f"{tmp_path}/mine.py:double"])
    assert box.names == ["calculator", "answer", "double"]
    assert [s["function"]["name"] for s in box.schemas] == box.names
    assert one(box, "double", x="4").text == "8"
    assert one(box, "answer", answer="42") == ToolResult("42", stop=True)
    for names, words in (
        (["calculater"], "did you mean calculator"),
        (["calculator", "calculator"], "twice"),
        ([f"{tmp_path}/mine.py:not_one"], "no function"),
        (["mcp:http:x"], "mcp:stdio:COMMAND"),
        (["mcp:stdio:"], "mcp:stdio:COMMAND"),
    ):
        with pytest.raises(BadInput, match=words):
            Toolbox(names)
    for name, made in ((n, m) for n, m in TOOLS.items() if not isinstance(m, Maker)):
        assert made.name == name
        assert len(made.description) > 10


SERVER = '''
from mcp.types import ImageContent
from mcp.server.mcpserver import MCPServer
server = MCPServer("small")

@server.tool()
def repeat(text: str, times: int = 2) -> str:
    """Repeat a text."""
    return text * times

@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("broken on purpose")

@server.tool()
def look(broken: bool = False) -> list:
    """Take a screenshot."""
    return ["a page", ImageContent(type="image", data="AAAA" if broken else PICTURE, mime_type="image/png")]

server.run()
'''


def test_an_mcp_server_is_tools(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    image = pictures()[0]
    (tmp_path / "server.py").write_text(f"PICTURE = {to_url(image).partition(',')[2]!r}\n{SERVER}")
    box = Toolbox([f"mcp:stdio:{sys.executable} {tmp_path}/server.py", "calculator"])
    try:
        assert box.names == ["repeat", "fail", "look", "calculator"]
        parameters = box.schemas[0]["function"]["parameters"]
        assert parameters["required"] == ["text"]
        for _ in range(2):  # in two event loops
            assert one(box, "repeat", text="ab", times=3) == ToolResult("ababab")
        failed = one(box, "fail")
        assert failed.outcome == "exception"
        assert "fail" in failed.text
        assert one(box, "repeat", times=3).outcome == "exception"
        assert one(box, "look") == ToolResult("a page", images=(image,))
        broken = one(box, "look", broken=True)
        assert (broken.outcome, broken.images) == ("exception", ())
        assert "not an image" in broken.text
    finally:
        asyncio.run(box.close())
    assert one(box, "repeat", text="a").outcome == "exception"


def test_an_mcp_server_that_does_not_start_is_refused() -> None:
    pytest.importorskip("mcp")
    with pytest.raises(BadInput, match="does not start"):
        Toolbox(["mcp:stdio:/no/such/program"])
    with pytest.raises(BadInput, match="does not start"):
        Toolbox([f"mcp:stdio:{sys.executable} -c pass"])


def test_a_tool_may_be_made_from_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(cfg: Config) -> Any:
        def seed() -> int:
            """Say the seed."""
            return cfg.trainer.seed

        return seed

    monkeypatch.setitem(TOOLS, "seed", Maker(make))
    cfg = Config()
    cfg.trainer.seed = 17
    assert one(Toolbox(["seed"], cfg), "seed").text == "17"
