"""Tools: what an agent may call. ``@tool`` makes one; ``TOOLS`` holds those that have a name of their own.

``MAKERS`` holds those that are made from the configuration.
"""

from collections.abc import Callable
from typing import Any

from recollect.tools.answer import answer
from recollect.tools.bash import bash
from recollect.tools.calculator import calculator
from recollect.tools.context import load_context
from recollect.tools.file_tools import edit_file, grep, list_files, read_file, write_file
from recollect.tools.python import python_executor
from recollect.tools.search import google_search_maker, search_maker
from recollect.tools.tool import Tool, renamed, stop, tool
from recollect.tools.toolbox import OpenTools, Toolbox
from recollect.types import ToolCall, ToolOutcome, ToolResult

TOOLS: dict[str, Tool] = {
    "answer": answer,
    "bash": bash,
    "calculator": calculator,
    "code_interpreter": renamed(python_executor, "code_interpreter"),
    "edit_file": edit_file,
    "grep": grep,
    "list_files": list_files,
    "load_context": load_context,
    "python_executor": python_executor,
    "read_file": read_file,
    "write_file": write_file,
}

MAKERS: dict[str, Callable[..., Any]] = {  # name → a function from the Config to a tool or a plain function
    "google_search": google_search_maker,
    "search": search_maker,
}

__all__ = [
    "MAKERS",
    "TOOLS",
    "OpenTools",
    "Tool",
    "ToolCall",
    "ToolOutcome",
    "ToolResult",
    "Toolbox",
    "renamed",
    "stop",
    "tool",
]
