"""Python for the model, in the trajectory's sandbox."""

from __future__ import annotations

from recollect.config import Config
from recollect.sandbox.sandbox_session import SandboxSession
from recollect.tools.program_output import observation
from recollect.tools.tool_definition import tool
from recollect.types import ToolResult


@tool(timeout=None)
async def python_executor(code: str, session: SandboxSession, cfg: Config) -> ToolResult:
    """Run Python code. Variables are kept between calls; what is printed and the value of the last line are shown.

    Args:
        code: The Python code to run.
    """
    return observation(await session.python(code), cfg.sandbox)
