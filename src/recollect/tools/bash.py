"""A shell for the model, in the trajectory's sandbox."""

from __future__ import annotations

from recollect.config import Config
from recollect.sandbox.sandbox_session import SandboxSession
from recollect.tools.program_output import observation
from recollect.tools.tool_definition import tool
from recollect.types import ToolResult


@tool(timeout=None)
async def bash(command: str, session: SandboxSession, cfg: Config) -> ToolResult:
    """Run a bash command in the working folder. There is no network, and processes end with the command.

    Args:
        command: The command to run.
    """
    return observation(await session.command(command), cfg.sandbox)
