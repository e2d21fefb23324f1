"""Templates of training rows: fields in braces, filled from a trajectory up to some action."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recollect.chat import TOOL_WRITERS
from recollect.data.yaml_files import read_mapping
from recollect.trajectories.keys import text_of
from recollect.trajectories.schema import Record
from recollect.types import BadInput

DEFAULT = Path(__file__).with_name("sft_templates.yaml")
FIELDS = frozenset(
    ("question", "asked", "context", "notes", "path", "tool", "input", "output", "step", "answer", "domain", "task_id")
)
SYNTAXES = ("line", "hermes", "llama", "react", "openai")
_FIELD = re.compile(r"\{\{|\}\}|\{(\w*)\}|[{}]")


@dataclass(frozen=True)
class ToolTemplate:
    """A row of a single tool."""

    prompt: str
    response: str


@dataclass(frozen=True)
class Templates:
    """How rows are written."""

    tools: Mapping[str, ToolTemplate]
    system: str
    user: str
    syntax: str
    observation: str
    final: str

    def of(self, tool: str) -> ToolTemplate:
        """The template of a tool."""
        return self.tools.get(tool) or self.tools["default"]


def load(path: str | Path | None) -> Templates:
    """Templates of a file; what it does not name is as in the package's own."""
    own = read_mapping(DEFAULT, "file of templates")
    given = read_mapping(Path(path).expanduser(), "file of templates") if path else {}
    for name in given:
        if name not in own:
            raise BadInput(f"{path}: {name} is unknown; known: {', '.join(own)}")
    rows = {**own["tools"], **(given.get("tools") or {})}
    tools = {name: _tool(row, name, own["tools"]["default"], path) for name, row in rows.items()}
    talk = {**own["conversation"], **(given.get("conversation") or {})}
    if extra := talk.keys() - own["conversation"].keys():
        raise BadInput(f"{path}: conversation.{min(extra)} is unknown; known: {', '.join(own['conversation'])}")
    if talk["syntax"] not in SYNTAXES:
        raise BadInput(f"{path}: conversation.syntax={talk['syntax']} is unknown; known: {', '.join(SYNTAXES)}")
    texts = {name: _checked(text, f"conversation.{name}", path) for name, text in talk.items() if name != "syntax"}
    return Templates(tools, syntax=talk["syntax"], **texts)


def _tool(row: Any, name: str, default: Mapping[str, str], path: Any) -> ToolTemplate:
    if not isinstance(row, Mapping) or not row.keys() <= {"prompt", "response"}:
        raise BadInput(f"{path}: tools.{name} has a prompt and a response")
    row = {**default, **row}
    return ToolTemplate(*(_checked(row[part], f"tools.{name}.{part}", path) for part in ("prompt", "response")))


def _checked(text: Any, place: str, path: Any) -> str:
    if not isinstance(text, str):
        raise BadInput(f"{path}: {place} has to be a text")
    for found in _FIELD.finditer(text):
        if found[0] in ("{", "}"):
            raise BadInput(f"{path}: {place} has a single brace; fields are {{name}}, a brace itself is doubled")
        if found[1] is not None and found[1] not in FIELDS:
            raise BadInput(f"{path}: {place} has the unknown field {found[0]}; known: {', '.join(sorted(FIELDS))}")
    return text


def filled(template: str, fields: Mapping[str, str]) -> str:
    """A template with its fields; what is put in is not looked at again."""
    return _FIELD.sub(lambda f: f[0][0] if f[1] is None else fields.get(f[1], ""), template)


def fields_at(record: Record, index: int) -> dict[str, str]:
    """The fields at an action: what was known just before it, and the action itself."""
    before = record["actions"][:index]
    action = record["actions"][index] if index < len(record["actions"]) else None
    thinking = ("reason", "decompose", "finalize")
    asked = record["metadata"].get("asked")
    return {
        "question": record["question"],
        "asked": asked if isinstance(asked, str) else record["question"],
        "context": "\n".join(t for a in before if a["tool"] not in thinking and (t := text_of(a["output"]))),
        "notes": "\n".join(t for a in before if a["tool"] in thinking and (t := plain(a["input"]))),
        "path": " → ".join(a["tool"] for a in before),
        "tool": action["tool"] if action else "",
        "input": plain(action["input"]) if action else "",
        "output": text_of(action["output"]) if action else "",
        "step": str(action["step"]) if action else "",
        "answer": record["final_answer"] or "",
        "domain": record["domain"],
        "task_id": record["task_id"],
    }


def plain(value: Any) -> str:
    """An input as text; of an object with one text that text."""
    if isinstance(value, dict) and len(value) == 1:
        (only,) = value.values()
        value = only if isinstance(only, str) else value
    return "" if value is None else text_of(value)


assert set(SYNTAXES) - {"openai"} <= TOOL_WRITERS.keys()
