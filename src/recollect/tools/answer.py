"""The tool that ends an episode."""

from __future__ import annotations

from recollect.tools.tool_definition import stop, tool
from recollect.types import ToolResult


@tool
async def answer(answer: str) -> ToolResult:
    """Give the final answer and finish.

    Args:
        answer: The final answer.
    """
    return stop(answer)
