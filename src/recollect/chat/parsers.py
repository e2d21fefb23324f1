"""Tool parsers by name (`agent.tool_parser`): from the text of a turn to the calls in it.

A parser is a function of the text and the tools' schemas. It never raises: a call that is written wrongly becomes a
``ToolCall`` with an ``error``, which goes back to the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from recollect.chat.json_calls import hermes, llama
from recollect.chat.schemas import Schema
from recollect.chat.text_calls import code, compact, line, react, search_r1
from recollect.types import ToolCall

Parser = Callable[[str, Sequence[Schema]], list[ToolCall]]

TOOL_PARSERS: dict[str, Parser] = {
    "hermes": hermes,
    "qwen": hermes,
    "llama": llama,
    "react": react,
    "code": code,
    "search_r1": search_r1,
    "line": line,
    "compact": compact,
}


def default_parser(template: str) -> str:
    """The syntax that a chat template shows its model."""
    if "<tool_call>" in template:
        return "hermes"
    marks = ("<|python_tag|>", '"parameters"', "ipython")
    return "llama" if any(mark in template for mark in marks) else "hermes"
