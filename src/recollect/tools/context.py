"""The task's document inside the sandbox, so that a program can read what is too long for a prompt."""

from __future__ import annotations

from recollect.config import Config
from recollect.data.documents import pieces
from recollect.sandbox.sandbox_session import SandboxSession
from recollect.tools.program_output import observation
from recollect.tools.tool_definition import tool
from recollect.types import Task, ToolResult

NAME = "context.txt"
SHOWN = 500


@tool(timeout=None)
async def load_context(session: SandboxSession, task: Task, cfg: Config) -> ToolResult:
    """Load the document of the task: as the file context.txt, and in Python as the variable context."""
    if task.context is None:
        return ToolResult("This task has no document.")
    length, beginning = 0, ""
    ran = await session.write(NAME, "")
    for piece in pieces(task.context):
        ran = await session.write(NAME, piece, append=True)
        if ran.outcome != "ok":
            return ToolResult(f"Error: {ran.err}") if ran.outcome == "error" else observation(ran, cfg.sandbox)
        length += len(piece)
        beginning += piece[: SHOWN - len(beginning)]
    ran = await session.python(f"with open({NAME!r}, newline='') as _file:\n    context = _file.read()")
    if ran.outcome != "ok":
        return observation(ran, cfg.sandbox)
    more = "…" if length > SHOWN else ""
    return ToolResult(f"{NAME} and the variable context hold {length} characters. They begin:\n{beginning}{more}")
