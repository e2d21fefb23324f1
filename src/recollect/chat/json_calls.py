"""Tool calls as JSON: in <tool_call> tags (Hermes, Qwen), or bare (Llama). What is written wrongly is a call too."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from recollect.chat.schemas import Schema, loads
from recollect.types import ToolCall

_DECODER = json.JSONDecoder()
_OPEN, _CLOSE, _PYTHON = "<tool_call>", "</tool_call>", "<|python_tag|>"


def hermes(text: str, schemas: Sequence[Schema] = ()) -> list[ToolCall]:
    """Every ``<tool_call>{"name": …, "arguments": {…}}</tool_call>``."""
    calls, place = [], 0
    while (start := text.find(_OPEN, place)) >= 0:
        value, end, problem = _json_at(text, start + len(_OPEN))
        if problem is None and text.startswith(_CLOSE, _skip(text, end, "")):
            place = _skip(text, end, "") + len(_CLOSE)
            calls.append(_call(value, "arguments"))
            continue
        close, again = text.find(_CLOSE, start), text.find(_OPEN, start + len(_OPEN))
        place = min([p for p in (close, again) if p >= 0], default=len(text))
        problem = problem or f"after a call's JSON there has to be {_CLOSE}"
        calls.append(ToolCall("", None, error=problem))
    return calls


def llama(text: str, schemas: Sequence[Schema] = ()) -> list[ToolCall]:
    """``{"name": …, "parameters": {…}}``, the whole of a reply, several with ; between them."""
    tagged = _PYTHON in text
    text = text.split(_PYTHON, 1)[-1].strip()
    if not text.startswith("{"):
        return [ToolCall("", None, error="a call is a JSON object")] if tagged else []
    calls: list[ToolCall] = []
    place = 0
    while place < len(text):
        value, end, problem = _json_at(text, place)
        if problem is None and not tagged and not calls and not (isinstance(value, dict) and "name" in value):
            return []  # an answer that happens to be JSON
        if problem is not None:
            return [*calls, ToolCall("", None, error=problem)] if tagged or calls or '"name"' in text else []
        calls.append(_call(value, "parameters"))
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


def _call(value: Any, key: str) -> ToolCall:
    """The call that a JSON value stands for; both usual names of the arguments are taken."""
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
