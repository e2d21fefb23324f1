"""Half characters: JSON can say one half of a surrogate pair (``\\ud800``), which is no text and cannot be written."""

from __future__ import annotations

import json
import re
from typing import Any

WHAT = r"half a character (such as \ud800 without its other half)"
_ESCAPED = re.compile(r"\\u[dD][89a-fA-F]")
_ALONE = re.compile(r"(?i)\\ud[89ab]..(?!\\ud[c-f])|(?<!\\ud[89ab]..)\\ud[c-f]")


def says_half(text: str, value: Any) -> bool:
    """True if a value that was read from a JSON text holds half a character."""
    return _ESCAPED.search(text) is not None and has_half(value)


def loads_whole(text: str) -> Any:
    """The value of a JSON text inside another; ValueError for what is no JSON, too deep, or holds half a character."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if says_half(text, value):
        raise ValueError(f"it holds {WHAT}")
    return value


def line_of_half(text: str) -> int:
    """The line of a JSON text, counted from 1, that holds half a character."""
    found = _ALONE.search(text)
    return text.count("\n", 0, found.start() if found else 0) + 1


def has_half(value: Any) -> bool:
    """True if a text, or a name or text somewhere in a JSON value, holds half a character."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def made_whole(value: Any) -> Any:
    """A JSON value with a question mark for every half character."""
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
