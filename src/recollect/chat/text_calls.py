"""Tool calls in running text: Thought/Action/Input, a fenced block of python, <search> tags, and one call per line.

Those formats have an answer of their own as well; ``*_answer`` finds it, None where there is none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from recollect.chat.schemas import Schema, function, loads, named, only_parameter, parameters, required
from recollect.types import ToolCall

SEARCH_TOOLS = ("search", "google_search")  # what <search> tags call, the first that there is
PYTHON_TOOLS = ("python_executor", "code_interpreter")  # what a block of python calls
_LABEL = re.compile(
    r"^[ \t*]*(Thought|Action Input|Action|Input|Observation|Final Answer)[ \t*]*:[ \t*]*", re.IGNORECASE | re.MULTILINE
)
_BRACKETS = re.compile(r"^([\w.:-]+)\s*\[(.*)\]$", re.DOTALL)
_FENCE = re.compile(r"^[ \t]*```(?:python|py|python3)[ \t]*\r?\n(.*?)^[ \t]*```[ \t]*$", re.DOTALL | re.MULTILINE)
_FENCE_OPEN = re.compile(r"^[ \t]*```(?:python|py|python3)[ \t]*$", re.MULTILINE)
_FENCED = re.compile(r"^```\w*\s*(.*?)\s*```$", re.DOTALL)


def react(text: str, schemas: Sequence[Schema] = ()) -> list[ToolCall]:
    """Every ``Action: tool`` with its ``Action Input:`` (or ``Input:``), up to a final answer."""
    return [
        _without_input(name or "", schemas) if body is None else _with_input(name or "", body, schemas)
        for name, body in react_actions(text)
    ]


def react_actions(text: str) -> list[tuple[str | None, str | None]]:
    """(action, its input) up to a final answer; None where one of them is missing."""
    found: list[tuple[str | None, str | None]] = []
    waiting: str | None = None  # an action without its input so far
    for label, body in _labelled(text):
        if label == "final answer":
            break
        if label == "action":
            found += [(waiting, None)] if waiting else []
            waiting = body.strip("`")
        elif label in ("action input", "input"):
            found.append((waiting, body))
            waiting = None
    return [*found, (waiting, None)] if waiting else found


def react_answer(text: str) -> str | None:
    """What follows ``Final Answer:``, unless an action stands before it."""
    for label, body in _labelled(text):
        if label == "final answer":
            return body
        if label in ("action", "action input", "input"):
            return None
    return None


def code(text: str, schemas: Sequence[Schema] = ()) -> list[ToolCall]:
    """The one fenced python block, as a call of the python tool."""
    tool = named(schemas, *PYTHON_TOOLS)
    blocks, opened = python_blocks(text), len(_FENCE_OPEN.findall(text))
    if not opened:
        return []
    if len(blocks) < opened:
        return [ToolCall(tool, None, error="the python block is not closed with ```")]
    if len(blocks) > 1:
        return [ToolCall(tool, None, error=f"write one python block in a turn, not {len(blocks)}")]
    return [ToolCall(tool, {only_parameter(schemas, tool, "code"): blocks[0]})]


def python_blocks(text: str) -> list[str]:
    """What stands in every fenced block of python."""
    return _FENCE.findall(text)


def search_r1(text: str, schemas: Sequence[Schema] = ()) -> list[ToolCall]:
    """Every ``<search>query</search>``."""
    tool = named(schemas, *SEARCH_TOOLS)
    calls = []
    for part in re.findall(r"<search>(.*?)(</search>|$)|(</search>)", text, re.DOTALL):
        query, closed, alone = part[0].strip(), part[1], part[2]
        if alone or not closed or "<search>" in query:
            problem = "a query stands between <search> and </search>"
        else:
            problem = "" if query else "the query is empty"
        arguments = None if problem else {only_parameter(schemas, tool, "query"): query}
        calls.append(ToolCall(tool, arguments, error=problem))
    return calls


def search_r1_answer(text: str) -> str | None:
    """What stands in ``<answer>…</answer>``, unless a search stands before it."""
    found = re.search(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return found[1].strip() if found and "<search>" not in text[: found.start()] else None


def line(text: str, schemas: Sequence[Schema] = ()) -> list[ToolCall]:
    """Every ``tool: input`` whose line begins with the name of a tool; the input goes on until the next one."""
    names = [str(s.get("function", s)["name"]) for s in schemas]
    if not names:
        return []
    known = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    found = list(re.finditer(rf"^[ \t*`]*({known})[ \t*`]*(?::|$)[ \t]*", text, re.MULTILINE))
    ends = [*(f.start() for f in found[1:]), *([len(text)] if found else [])]
    return [_line(f[1], text[f.end() : end].strip(), schemas) for f, end in zip(found, ends, strict=True)]


def _line(name: str, body: str, schemas: Sequence[Schema]) -> ToolCall:
    """A call of ``line``. JSON that does not name the only parameter of a tool is that parameter's text."""
    known = parameters(schemas, name) or {}
    fenced = _FENCED.match(body)
    body = fenced[1] if fenced else body
    call = _with_input(name, body, schemas)
    single = len(known) == 1
    if single and not body and required(schemas, name):
        return ToolCall(name, None, error=f"{name} needs an input: {name}: {next(iter(known))}")
    if single and body and call.arguments is not None and next(iter(known)) not in call.arguments:
        return ToolCall(name, {next(iter(known)): body})
    return call


def compact(text: str, schemas: Sequence[Schema] = ()) -> list[ToolCall]:
    """Every line ``tool first: second``: a tool's name, or its part after the first _, and what it must be given."""
    known = [function(s)["name"] for s in schemas]
    short = {name.partition("_")[2]: name for name in reversed(known)}
    calls = []
    for line in text.splitlines():
        word, _, rest = line.strip().partition(" ")
        name = word if word in known else short.get(word) if word else None
        if name is not None:
            keys = list(parameters(schemas, name) or {})
            values = rest.split(": ", len(keys) - 1) if rest.strip() and keys else []
            calls.append(ToolCall(name, dict(zip(keys, (v.strip() for v in values), strict=False))))
    return calls


def _labelled(text: str) -> list[tuple[str, str]]:
    """(label, text up to the next label) in order."""
    found = list(_LABEL.finditer(text))
    ends = [*(f.start() for f in found[1:]), *([len(text)] if found else [])]
    return [(f[1].lower(), text[f.end() : end].strip()) for f, end in zip(found, ends, strict=True)]


def _without_input(action: str, schemas: Sequence[Schema]) -> ToolCall:
    brackets = _BRACKETS.match(action)
    if brackets:
        return _with_input(brackets[1], brackets[2], schemas)
    if required(schemas, action):
        return ToolCall(action, None, error=f"there is no Action Input for {action}")
    return ToolCall(action, {})


def _with_input(name: str, body: str, schemas: Sequence[Schema]) -> ToolCall:
    """A call with its input: a JSON object, or for a tool that needs one parameter its value."""
    if not name:
        return ToolCall("", None, error="an Action Input needs an Action before it")
    fenced = _FENCED.match(body)
    body = fenced[1] if fenced else body
    try:
        value: Any = loads(body)
    except ValueError:
        value = None
    known = parameters(schemas, name)
    if isinstance(value, dict):
        return ToolCall(name, value)
    if known is None or not body:
        return ToolCall(name, {})  # no such tool, or nothing to give it: the toolbox says so
    if len(known) != 1:
        return ToolCall(name, None, error=f"the Action Input of {name} has to be a JSON object")
    key, spec = next(iter(known.items()))
    takes_text = spec.get("type", "string") == "string"
    return ToolCall(name, {key: value if isinstance(value, str) or (value is not None and not takes_text) else body})
