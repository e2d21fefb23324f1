"""Files for the model, in the trajectory's sandbox; the work is done there (``sandbox/inside/files.py``)."""

from __future__ import annotations

from typing import Any

from recollect.config import Config
from recollect.sandbox.sandbox_session import SandboxSession
from recollect.tools.program_output import observation
from recollect.tools.tool_definition import tool
from recollect.types import ToolResult


async def _do(session: SandboxSession, cfg: Config, name: str, **arguments: Any) -> ToolResult:
    ran = await session.file(name, **arguments)
    return ToolResult(f"Error: {ran.err}") if ran.outcome == "error" else observation(ran, cfg.sandbox)


@tool(timeout=None)
async def read_file(path: str, session: SandboxSession, cfg: Config, start: int = 1, lines: int = 0) -> ToolResult:
    """Read a text file.

    Args:
        path: The file.
        start: The first line to show.
        lines: How many lines to show; 0 shows all.
    """
    return await _do(session, cfg, "read_file", path=path, start=start, lines=lines)


@tool(timeout=None)
async def write_file(path: str, text: str, session: SandboxSession, cfg: Config, append: bool = False) -> ToolResult:
    """Write a text file; its folders are made when they are missing.

    Args:
        path: The file.
        text: What it shall hold.
        append: Add to the end instead of replacing the file.
    """
    return await _do(session, cfg, "write_file", path=path, text=text, append=append)


@tool(timeout=None)
async def edit_file(
    path: str, old: str, new: str, session: SandboxSession, cfg: Config, every: bool = False
) -> ToolResult:
    """Replace a text in a file. It must occur exactly once unless every occurrence is to be replaced.

    Args:
        path: The file.
        old: The text to replace.
        new: The text to put in its place.
        every: Replace every occurrence.
    """
    return await _do(session, cfg, "edit_file", path=path, old=old, new=new, every=every)


@tool(timeout=None)
async def list_files(session: SandboxSession, cfg: Config, path: str = ".") -> ToolResult:
    """List all files below a folder, with their sizes.

    Args:
        path: The folder.
    """
    return await _do(session, cfg, "list_files", path=path)


@tool(timeout=None)
async def grep(pattern: str, session: SandboxSession, cfg: Config, path: str = ".") -> ToolResult:
    """Find the lines that match a regular expression, in a file or in all files below a folder.

    Args:
        pattern: The regular expression (Python's syntax).
        path: The file or folder.
    """
    return await _do(session, cfg, "grep", pattern=pattern, path=path)
