"""Tool calls as JSON: in <tool_call> tags (Hermes, Qwen), or bare (Llama). What is written wrongly is a call too."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from recollect.chat.schemas import Schema, loads
from recollect.types import ToolCall

_DECODER = json.JSONDecoder()
_OPEN, _CLOSE, _PYTHON = "<tool_call>", "</tool_call>", "<|python_tag|>"


class JSONCall(NamedTuple):
    """What stands where a call should be."""

    text: str  # as it is written
    value: Any  # its JSON
    error: str | None = None  # what is wrong with it; then there is no value


def hermes(text: str, schemas: Sequence[Schema] = ()) -> list[ToolCall]:
    """Every ``<tool_call>{"name": …, "arguments": {…}}</tool_call>``."""
    return [_call(found, "arguments") for found in tagged_calls(text)]


def llama(text: str, schemas: Sequence[Schema] = ()) -> list[ToolCall]:
    """``{"name": …, "parameters": {…}}``, the whole of a reply, several with ; between them."""
    return [_call(found, "parameters") for found in bare_calls(text)]


def tagged_calls(text: str) -> list[JSONCall]:
    """What stands in every <tool_call>."""
    calls, place = [], 0
    while (start := text.find(_OPEN, place)) >= 0:
        inside = start + len(_OPEN)
        value, end, problem = _json_at(text, inside)
        if problem is None and text.startswith(_CLOSE, _skip(text, end, "")):
            place = _skip(text, end, "") + len(_CLOSE)
            calls.append(JSONCall(text[inside:end].strip(), value))
            continue
        close, again = text.find(_CLOSE, start), text.find(_OPEN, inside)
        place = min([p for p in (close, again) if p >= 0], default=len(text))
        problem = problem or f"after a call's JSON there has to be {_CLOSE}"
        calls.append(JSONCall(text[inside:place].strip(), None, problem))
    return calls


def bare_calls(text: str) -> list[JSONCall]:
    """The calls that a reply consists of; none where it is something else."""
    tagged = _PYTHON in text
    text = text.split(_PYTHON, 1)[-1].strip()
    if not text.startswith("{"):
        return [JSONCall(text, None, "a call is a JSON object")] if tagged else []
    calls: list[JSONCall] = []
    place = 0
    while place < len(text):
        value, end, problem = _json_at(text, place)
        if problem is None and not tagged and not calls and not (isinstance(value, dict) and "name" in value):
            return []  # an answer that happens to be JSON
        if problem is not None:
            return [*calls, JSONCall(text[place:], None, problem)] if tagged or calls or '"name"' in text else []
        calls.append(JSONCall(text[place:end], value))
        place = _skip(text, end, ";")
    return calls


def _json_at(text: str, start: int) -> tuple[Any, int, str | None]:
    """(value, where it ends, what is wrong) of the JSON that begins at a place, white space aside."""
    start = _skip(text, start, "")
    try:
        return *_DECODER.raw_decode(text, start), None
    except (ValueError, RecursionError) as error:
        what = error.msg if isinstance(error, json.JSONDecodeError) else "it cannot be read"
        return None, start, f"a call has to hold JSON: {what}"


def _skip(text: str, place: int, more: str) -> int:
    while place < len(text) and (text[place].isspace() or text[place] in more):
        place += 1
    return place


def _call(found: JSONCall, key: str) -> ToolCall:
    """The call that a JSON value stands for; both usual names of the arguments are taken."""
    value = found.value
    if found.error is not None:
        return ToolCall("", None, error=found.error)
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not value["name"]:
        return ToolCall("", None, error=f'a call is a JSON object with "name" and "{key}"')
    given = value.get(key, value.get("arguments", value.get("parameters")))
    if isinstance(given, str):  # some models write the arguments as a JSON text
        with suppress(ValueError):
            given = loads(given)
    given = {} if given is None else given
    if not isinstance(given, dict):
        return ToolCall(value["name"], None, error=f'"{key}" has to be a JSON object')
    return ToolCall(value["name"], given)
