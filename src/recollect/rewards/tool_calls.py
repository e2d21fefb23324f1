"""The tool calls that a turn's text holds, in the ways that agents write them.

Hermes and Qwen (``<tool_call>{json}</tool_call>``), Llama (a turn that is one JSON object), ReAct (``Action:`` and
``Action Input:``), tags (``<search>…</search>``) and, before the last turn, fenced Python.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass

from recollect.chat.json_calls import JSONCall, bare_calls, tagged_calls
from recollect.chat.schemas import loads
from recollect.chat.text_calls import python_blocks, react_actions
from recollect.types import Trajectory

_TAGGED = re.compile(r"<(search|python|code)>(.*?)</\1>", re.DOTALL)


@dataclass(frozen=True)
class Call:
    """One call: equal when tool and arguments are."""

    name: str
    arguments: str  # JSON with sorted keys, or the text as it was written
    formed: bool = True  # False: it cannot be read


def calls_in(text: str, last: bool = True) -> list[Call]:
    """The calls of one turn; fenced code in the last turn is an answer and not a call."""
    if tagged := tagged_calls(text):
        return [_from_json(call) for call in tagged]
    actions = [(name, body) for name, body in react_actions(text) if name is not None and body is not None]
    if react := [_from_react(name, body) for name, body in actions]:
        return react
    if named := [_of(m.group(1), m.group(2)) for m in _TAGGED.finditer(text)]:
        return named
    if bare := bare_calls(text):
        return [_from_json(call) for call in bare]
    return [] if last else [_of("python", block) for block in python_blocks(text)]


def calls_of(trajectory: Trajectory) -> list[Call]:
    """The calls of all turns, in order."""
    texts = [turn.completion.text for turn in trajectory.turns]
    return [call for i, text in enumerate(texts, 1) for call in calls_in(text, last=i == len(texts))]


def _of(name: str, text: str) -> Call:
    return Call(name, text.strip(), bool(name and text.strip()))


def _from_json(call: JSONCall) -> Call:
    """A call with a name and an object of arguments, which may be written as a JSON text."""
    made = call.value if isinstance(call.value, dict) else {}
    name, arguments = made.get("name"), made.get("arguments", made.get("parameters"))
    with suppress(ValueError):
        arguments = loads(arguments) if isinstance(arguments, str) else arguments
    if isinstance(name, str) and name.strip() and isinstance(arguments, dict):
        return Call(name.strip(), json.dumps(arguments, sort_keys=True))
    return Call("", call.text, False)


def _from_react(name: str, text: str) -> Call:
    with suppress(ValueError):
        text = json.dumps(loads(text), sort_keys=True)
    return _of(name, text)
