"""Write calls as the text that a parser reads, for scripted experts and tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from recollect.types import ToolCall

Writer = Callable[[Sequence[ToolCall]], str]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def hermes(calls: Sequence[ToolCall]) -> str:
    """One <tool_call> block for each call."""
    rows = [_json({"name": c.name, "arguments": c.arguments or {}}) for c in calls]
    return "\n".join(f"<tool_call>\n{row}\n</tool_call>" for row in rows)


def llama(calls: Sequence[ToolCall]) -> str:
    """JSON objects with ; between them."""
    return "; ".join(_json({"name": c.name, "parameters": c.arguments or {}}) for c in calls)


def react(calls: Sequence[ToolCall]) -> str:
    """Action and Action Input lines."""
    return "\n".join(f"Action: {c.name}\nAction Input: {_json(c.arguments or {})}" for c in calls)


def code(calls: Sequence[ToolCall]) -> str:
    """A fenced block that holds the only argument of each call."""
    return "\n".join(f"```python\n{_only(c).rstrip()}\n```" for c in calls)


def search_r1(calls: Sequence[ToolCall]) -> str:
    """The only argument of each call in <search> tags."""
    return "\n".join(f"<search>{_only(c)}</search>" for c in calls)


def line(calls: Sequence[ToolCall]) -> str:
    """``tool: input`` lines: a single text as it is, other arguments as JSON."""
    return "\n".join(f"{c.name}: {_plain(c.arguments or {})}".rstrip() for c in calls)


def _plain(arguments: dict[str, Any]) -> str:
    values = list(arguments.values())
    return values[0] if len(values) == 1 and isinstance(values[0], str) else _json(arguments) if values else ""


def compact(calls: Sequence[ToolCall]) -> str:
    """A line for each call."""
    return "\n".join(f"{c.name} {': '.join(str(v) for v in (c.arguments or {}).values())}".strip() for c in calls)


def _only(call: ToolCall) -> str:
    (value,) = (call.arguments or {}).values()
    return str(value)


TOOL_WRITERS: dict[str, Writer] = {
    "hermes": hermes,
    "qwen": hermes,
    "llama": llama,
    "react": react,
    "code": code,
    "search_r1": search_r1,
    "line": line,
    "compact": compact,
}
