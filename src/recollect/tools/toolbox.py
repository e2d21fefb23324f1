"""The tools of a run, and the set that one trajectory holds. A failing tool is an observation, never an exception."""

from __future__ import annotations

import asyncio
import difflib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, Protocol

from recollect.config import Config
from recollect.policies.endpoint import EndpointDown
from recollect.registries import TOOLS
from recollect.runtime.error_text import error_text, named_error
from recollect.runtime.plugins import find
from recollect.runtime.secrets import redacted
from recollect.runtime.threads import Slots, contained
from recollect.runtime.work_place import room
from recollect.sandbox import shared
from recollect.sandbox.pool import Pool
from recollect.sandbox.sandbox_session import SandboxSession
from recollect.tools.instances import Instance, Instances, run
from recollect.tools.mcp import ToolServer
from recollect.tools.memory.workspace import MemoryWorkspace
from recollect.tools.observe import as_result, cut
from recollect.tools.signature import BadArguments
from recollect.tools.tool_definition import Maker, Tool, tool
from recollect.types import BadInput, Task, ToolCall, ToolOutcome, ToolResult, Trajectory

MAX_MESSAGE = 1000


class Sandboxes(Protocol):
    """Where programs run that the model wrote."""

    def start(self) -> Any:
        """Make ready; BadInput where programs cannot be isolated."""

    def session(self) -> AbstractAsyncContextManager[SandboxSession]:
        """A new empty session."""

    def close(self) -> None:
        """End everything."""


class Toolbox:
    """The tools of a run, found by name and opened for each trajectory."""

    def __init__(
        self,
        names_or_tools: Iterable[str | Tool | Callable[..., Any]],
        cfg: Config | None = None,
        key: str = "agent.tools",
        sandbox: Sandboxes | None = None,
    ) -> None:
        """``sandbox`` is where programs run; by default one of this process."""
        self.cfg = cfg or Config()
        self._servers: list[ToolServer] = []
        self.tools: dict[str, Tool] = {}
        try:
            for given in names_or_tools:
                for found in self._resolve(given, key):
                    if found.name in self.tools:
                        raise BadInput(f"{key} names the tool {found.name} twice")
                    self.tools[found.name] = found
            self.pools = {
                name: Instances(t) for name, t in self.tools.items() if t.stateful and t.scope == "trajectory"
            }
            self.slots = {name: Slots(t.pool) for name, t in self.tools.items() if name not in self.pools}
            self.shared: dict[str, Instance] = {}
            self.sharing = Slots(1)
            self.sandbox: Sandboxes = Pool(self.cfg.sandbox) if sandbox is None else sandbox
            self.own_sandbox = sandbox is None
            shared.configure(self.cfg.sandbox)
            if any(t.sandboxed for t in self.tools.values()):
                self.sandbox.start()
        except BaseException:
            self._close_servers()
            raise

    def _resolve(self, given: str | Tool | Callable[..., Any], key: str) -> list[Tool]:
        if isinstance(given, Tool):
            return [given]
        if isinstance(given, str) and given.startswith("mcp:"):
            self._servers.append(ToolServer(given, key))
            return self._servers[-1].tools
        found = find(given, TOOLS, key) if isinstance(given, str) else given
        if isinstance(found, Maker):
            found = found(self.cfg)
        try:
            return [found if isinstance(found, Tool) else tool(found)]
        except (ValueError, TypeError, NameError) as error:
            raise BadInput(f"{key}={given}: {error}") from None

    @property
    def names(self) -> list[str]:
        """The tools' names."""
        return list(self.tools)

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """The tools' function schemas, as a chat template takes them."""
        return [t.schema for t in self.tools.values()]

    @asynccontextmanager
    async def open(
        self, task: Task, trajectory: Trajectory, workspace: MemoryWorkspace | None = None
    ) -> AsyncIterator[OpenTools]:
        """The tools for one trajectory; its instances and its sandbox are given back on the way out."""
        async with AsyncExitStack() as stack:
            mine = OpenTools(self, task, trajectory, stack, workspace)
            for name, instances in self.pools.items():  # in one order for all, so that nobody waits in a circle
                if instances.bounded:
                    mine.instances[name] = await stack.enter_async_context(instances.lend(task))
            yield mine

    async def close(self) -> None:
        """End servers, sandboxes and instances."""
        for instances in self.pools.values():
            await instances.close()
        for instance in self.shared.values():
            if (close := getattr(instance.value, "close", None)) is not None:
                await run(close)
        self.shared.clear()
        if self.own_sandbox:
            self.sandbox.close()
        self._close_servers()

    def _close_servers(self) -> None:
        for server in self._servers:
            server.close()


class OpenTools:
    """One trajectory's tools."""

    def __init__(
        self,
        box: Toolbox,
        task: Task,
        trajectory: Trajectory,
        stack: AsyncExitStack,
        workspace: MemoryWorkspace | None = None,
    ) -> None:
        self._box, self._task, self._trajectory, self._stack, self._workspace = box, task, trajectory, stack, workspace
        self.instances: dict[str, Instance] = {}
        self.counts: Counter[str] = (
            Counter()
        )  # "calls", each outcome, "cut", "tool/NAME", and "tool/NAME/OUTCOME" if not ok
        self._session: SandboxSession | None = None
        self._session_stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        stack.push_async_callback(self._session_stack.aclose)

    async def call_all(self, calls: Iterable[ToolCall]) -> list[ToolResult]:
        """Run the calls of a turn side by side; results in the order of the calls."""
        return list(await asyncio.gather(*map(self.call, calls)))

    async def call(self, call: ToolCall) -> ToolResult:
        """Run one call. Whatever goes wrong becomes a result; only cancellation is raised."""
        result = await self._call(call)
        self.counts["calls"] += 1
        self.counts[result.outcome] += 1
        self.counts.update({"cut": 1} if result.cut else {})
        if call.name in self._box.tools:
            self.counts[f"tool/{call.name}"] += 1
            self.counts.update({f"tool/{call.name}/{result.outcome}": 1} if result.outcome != "ok" else {})
        return result

    async def _call(self, call: ToolCall) -> ToolResult:
        if call.arguments is None or call.error:
            return _failed("malformed", f"The call cannot be read: {call.error or 'it has no arguments'}.")
        found = self._box.tools.get(call.name)
        if found is None:
            near = difflib.get_close_matches(call.name, self._box.names, 1)
            hint = f" Did you mean {near[0]}?" if near else ""
            known = ", ".join(self._box.names) or "none"
            return _failed("unknown", f"There is no tool {cut(call.name, 100)!r}.{hint} Tools: {known}.")
        try:
            arguments = found.signature.fit(call.arguments)
        except BadArguments as error:
            return _failed("arguments", f"Wrong arguments for {found.name}: {error_text(error)}")
        try:
            return await self._run(found, arguments)
        except EndpointDown:  # where it runs is gone; the attempt is made again when that is back
            raise
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return _failed("exception", "CancelledError: the tool cancelled itself")
        except Exception as error:
            return _failed("exception", redacted(named_error(error).rstrip(": ")))

    async def _run(self, found: Tool, arguments: dict[str, Any]) -> ToolResult:
        """Run a call with what it needs; only the call itself counts against its deadline."""
        for name, kind in found.signature.given.items():
            arguments[name] = await self._given(kind)
        if not found.stateful:
            async with self._box.slots[found.name].one(), room(found.run):
                return await self._within(found, run(found.run, **arguments))
        instance = await self._instance(found)
        if found.scope == "global":
            async with self._box.slots[found.name].one():
                return await self._within(found, run(_method(instance), **arguments))
        async with instance.turn:
            result = await self._within(found, run(_method(instance), **arguments))
            instance.dirty |= result.outcome == "timeout"
            return result

    async def _within(self, found: Tool, work: Awaitable[Any]) -> ToolResult:
        """Wait for a call until its deadline; one that does not end is left behind."""
        task = asyncio.ensure_future(_guarded(work))
        try:
            done, _ = await asyncio.wait({task}, timeout=found.timeout)
        except asyncio.CancelledError:
            task.cancel()
            if found.name in self.instances:
                self.instances[found.name].dirty = True
            raise
        if not done:
            task.cancel()
            return _failed("timeout", f"{found.name} did not answer within {found.timeout:g} seconds.")
        made = as_result(task.result(), found.max_length)
        return replace(made, stop=True) if found.ends and made.outcome == "ok" else made

    async def _given(self, kind: type) -> Any:
        if kind is SandboxSession:
            return await self.session()
        if kind is MemoryWorkspace and self._workspace is None:
            raise RuntimeError("this tool edits the memory of the agent tool_memory, and there is none here")
        given = {Task: self._task, Trajectory: self._trajectory, Config: self._box.cfg}
        return self._workspace if kind is MemoryWorkspace else given[kind]

    async def session(self) -> SandboxSession:
        """The trajectory's sandbox, opened when it is first needed and again when it was lost."""
        async with self._opening:
            if self._session is None or self._session.closed:
                await self._session_stack.aclose()
                self._session = await self._session_stack.enter_async_context(self._box.sandbox.session())
            return self._session

    async def _instance(self, found: Tool) -> Instance:
        if found.scope == "global":
            async with self._box.sharing.one():
                if found.name not in self._box.shared:
                    self._box.shared[found.name] = Instance(await run(found.run))
                return self._box.shared[found.name]
        async with self._opening:
            if found.name not in self.instances:
                lent = self._box.pools[found.name].lend(self._task)
                self.instances[found.name] = await self._stack.enter_async_context(lent)
            return self.instances[found.name]


def _method(instance: Instance) -> Callable[..., Any]:
    """The bound ``__call__``, which unlike the instance says whether it is async."""
    return instance.value.__call__


async def _guarded(work: Awaitable[Any]) -> Any:
    """Await, but turn whatever would end the program into an ordinary exception."""
    try:
        with contained():
            return await work
    except KeyboardInterrupt as error:
        raise RuntimeError(named_error(error)) from None


def _failed(outcome: ToolOutcome, text: str) -> ToolResult:
    return ToolResult(cut(text, MAX_MESSAGE), outcome)
