"""Tools: what an agent may call. ``@tool`` makes one; ``TOOLS`` holds those that have a name of their own."""

from recollect.registries import TOOLS
from recollect.tools.answer import answer
from recollect.tools.bash import bash
from recollect.tools.calculator import calculator
from recollect.tools.context import load_context
from recollect.tools.file_tools import edit_file, grep, list_files, read_file, write_file
from recollect.tools.python import python_executor
from recollect.tools.search import google_search_maker, search_maker
from recollect.tools.tool_definition import Maker, Tool, renamed, stop, tool
from recollect.tools.toolbox import OpenTools, Toolbox
from recollect.types import ToolCall, ToolOutcome, ToolResult

TOOLS.update(  # messages name them in this order
    {
        "calculator": calculator,
        "google_search": Maker(google_search_maker),
        "search": Maker(search_maker),
        "answer": answer,
        "python_executor": python_executor,
        "code_interpreter": renamed(python_executor, "code_interpreter"),
        "load_context": load_context,
        "bash": bash,
        "read_file": read_file,
        "write_file": write_file,
        "edit_file": edit_file,
        "list_files": list_files,
        "grep": grep,
    }
)

__all__ = [
    "TOOLS",
    "Maker",
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
