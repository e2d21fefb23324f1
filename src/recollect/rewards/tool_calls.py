"""The tool calls that a turn's text holds, in the ways that agents write them.

Hermes and Qwen (``<tool_call>{json}</tool_call>``), Llama (a turn that is one JSON object), ReAct (``Action:`` and
``Action Input:``), tags (``<search>…</search>``) and, before the last turn, fenced Python.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from recollect.types import Trajectory

_HERMES = re.compile(r"<tool_call>(.*?)(?:</tool_call>|(?=<tool_call>)|\Z)", re.DOTALL)
_REACT = re.compile(
    r"^[ \t]*Action[ \t]*:[ \t]*(?P<name>[^\n]*)\n+[ \t]*(?:Action[ \t]+)?Input[ \t]*:[ \t]*"
    r"(?P<input>.*?)(?=^[ \t]*(?:Action|Thought|Observation|Final Answer)[ \t]*:|\Z)",
    re.DOTALL | re.MULTILINE,
)
_TAGGED = re.compile(r"<(search|python|code)>(.*?)</\1>", re.DOTALL)
_FENCED = re.compile(r"^```(?:python|py)[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Call:
    """One call: equal when tool and arguments are."""

    name: str
    arguments: str  # JSON with sorted keys, or the text as it was written
    formed: bool = True  # False: it cannot be read


def calls_in(text: str, last: bool = True) -> list[Call]:
    """The calls of one turn; fenced code in the last turn is an answer and not a call."""
    hermes = [_from_json(m.group(1), m.group(0).endswith("</tool_call>")) for m in _HERMES.finditer(text)]
    if hermes:
        return hermes
    react = [_from_react(m) for m in _REACT.finditer(text)]
    if react:
        return react
    tagged = [Call(m.group(1), m.group(2).strip(), bool(m.group(2).strip())) for m in _TAGGED.finditer(text)]
    if tagged:
        return tagged
    bare = text.strip().removeprefix("<|python_tag|>").strip()
    if bare.startswith("{") and re.search(r'"(name|parameters)"\s*:', bare):
        return [_from_json(bare, True)]
    return (
        [] if last else [Call("python", m.group(1).strip(), bool(m.group(1).strip())) for m in _FENCED.finditer(text)]
    )


def calls_of(trajectory: Trajectory) -> list[Call]:
    """The calls of all turns, in order."""
    texts = [turn.completion.text for turn in trajectory.turns]
    return [call for i, text in enumerate(texts, 1) for call in calls_in(text, last=i == len(texts))]


def _from_json(text: str, closed: bool) -> Call:
    try:
        made: Any = json.loads(text)
        name, arguments = made["name"], made.get("arguments", made.get("parameters"))
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
        if closed and isinstance(name, str) and name.strip() and isinstance(arguments, dict):
            return Call(name.strip(), json.dumps(arguments, sort_keys=True))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    return Call("", text.strip(), False)


def _from_react(found: re.Match[str]) -> Call:
    name, text = found["name"].strip(), found["input"].strip()
    try:
        made = json.loads(text)
        text = json.dumps(made, sort_keys=True)
    except (ValueError, RecursionError):
        pass
    return Call(name, text, bool(name) and bool(text))
