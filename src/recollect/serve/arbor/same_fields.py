"""Whether two texts say the same: clients read a completion into fields and write it anew from them.

Markers of fields are `[[ ## name ## ]]` (DSPy's chat adapter), `<name>…</name>` (its XML adapter) or the keys of a JSON
object. Blanks around values do not count, nor does what stands before the first field or after the last.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from typing import Any

_HEADING = re.compile(r"^[ \t]*\[\[ ## (\w+) ## \]\]", re.MULTILINE)
_OPEN, _CLOSE = re.compile(r"<(\w+)>"), re.compile(r"</(\w+)>")
_END = "completed"  # the marker after the last field


def saying(text: str) -> tuple[Any, ...]:
    """What a text says: equal for texts that a client reads as the same."""
    for kind, read in (("fields", _headings), ("fields", _json), ("tags", _tags)):
        if found := read(text):
            return (kind, *found)
    return "text", text.strip()


def _headings(text: str) -> list[tuple[str, str]]:
    """The fields under headings; of a field that comes twice the first counts, as DSPy reads it."""
    found = list(_HEADING.finditer(text))
    ends = [*(match.start() for match in found[1:]), len(text)] if found else []
    fields: dict[str, str] = {}
    for match, end in zip(found, ends, strict=True):
        fields.setdefault(match.group(1), text[match.end() : end].strip())
    fields.pop(_END, None)
    return sorted((name, _value(value)) for name, value in fields.items())


def _json(text: str) -> list[tuple[str, str]]:
    start, end = text.find("{"), text.rfind("}")
    try:
        found = json.loads(text[start : end + 1]) if 0 <= start < end else None
    except (ValueError, RecursionError):
        return []
    if not isinstance(found, dict):
        return []
    return sorted((str(name), _value(v if isinstance(v, str) else json.dumps(v))) for name, v in found.items())


def _tags(text: str) -> list[tuple[str, str]]:
    closed: dict[str, list[int]] = {}
    for match in _CLOSE.finditer(text):
        closed.setdefault(match.group(1), []).append(match.start())
    fields: dict[str, str] = {}
    inside = 0  # up to where the last field goes: tags in a value are a part of it
    for match in _OPEN.finditer(text):
        ends = closed.get(match.group(1), [])
        if match.start() < inside or (at := bisect_left(ends, match.end())) == len(ends):
            continue
        inside = ends[at]
        fields.setdefault(match.group(1), text[match.end() : inside].strip())
    return sorted((name, _value(value)) for name, value in fields.items())


def _value(text: str) -> str:
    """A value as every writing of it says it: 7, `7.0` stays another number, and lists lose their blanks."""
    text = text.strip()
    if text in ("True", "False"):
        return text.lower()
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except (ValueError, RecursionError):
        return text
