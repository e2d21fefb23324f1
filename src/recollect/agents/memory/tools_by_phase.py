"""The tools that a conversation about a memory has: those of its phase, within its limits, and the user's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from recollect.agents.session import RunsTools, Session, SessionTools
from recollect.chat.schemas import Schema
from recollect.config import ToolMemory
from recollect.tools.memory.tools import ANSWERING, SEARCHES, WRITING
from recollect.tools.memory.workspace import MemoryWorkspace
from recollect.tools.observe import cut
from recollect.tools.toolbox import Toolbox
from recollect.types import ToolCall, ToolResult


@cache
def toolbox(phase: str, searches: tuple[str, ...]) -> Toolbox:
    """The memory tools of a phase, ``memory`` or ``qa``. Nothing of a trajectory is kept in them."""
    return Toolbox(WRITING if phase == "memory" else (*ANSWERING, *(SEARCHES[name] for name in searches)))


class MemoryTools:
    """The tools of one conversation."""

    def __init__(
        self, memory: SessionTools, own: SessionTools | None, workspace: MemoryWorkspace, limits: ToolMemory
    ) -> None:
        self.memory, self.own, self.workspace, self.limits = memory, own, workspace, limits
        self.schemas: list[Schema] = [*memory.schemas, *(own.schemas if own else [])]
        self._others = {s["function"]["name"] for s in own.schemas} if own else set()

    async def call_all(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Run a turn's calls in their order, for a later one may build on an earlier one; too many are refused."""
        results = [await self._call(call) for call in calls[: self.limits.max_calls]]
        refused = f"Not run: a turn may have {self.limits.max_calls} calls."
        for call in calls[self.limits.max_calls :]:
            self.workspace.other(call.name, "", False)
            results.append(ToolResult(refused, "arguments"))
        limits = self.limits
        return [replace(r, text=cut(r.text, limits.max_length, limits.truncate_side)) for r in results]

    async def _call(self, call: ToolCall) -> ToolResult:
        if self.own is not None and call.name in self._others:
            return (await self.own.call_all([call]))[0]
        (result,) = await self.memory.call_all([call])
        if result.outcome != "ok":
            self.workspace.other(call.name, "", False)
        return result


def take_counts(session: Session, open_tools: RunsTools) -> None:
    """Add a conversation's calls to the trajectory's."""
    counts = Counter(session.trajectory.tool_calls) + open_tools.counts
    session.trajectory.tool_calls = dict(counts)
