"""The fields of templates: what a trajectory says at one of its actions, as texts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from recollect.trajectories.field_names import text_of
from recollect.trajectories.produced import THINKING, is_prompted, plain, produced, prompt_of
from recollect.trajectories.schema import Record

_NAMES = """question asked context notes path tool input output given produced step answer domain task_id"""
FIELDS = frozenset(_NAMES.split())
OWN = ("context", "notes", "path")  # of an instruction: as the step itself has them
SHORT = 12  # characters of a line that may stand in another one by chance
_FIELD = re.compile(r"\{\{|\}\}|\{(\w*)\}|[{}]")
_BULLET = re.compile(r"^(?:[-*•]|\d+[.)])\s+")
_LABEL = re.compile(r"(?:[^:]{1,60}:|\W+|\(none\))")


def names_in(template: str) -> Iterator[str | None]:
    """The names of the fields of a template; None for a brace that stands alone."""
    for found in _FIELD.finditer(template):
        if found[0] in ("{", "}"):
            yield None
        elif found[1] is not None:
            yield found[1]


def filled(template: str, fields: Mapping[str, str]) -> str:
    """A template with its fields; what is put in is not looked at again."""
    return _FIELD.sub(lambda f: f[0][0] if f[1] is None else fields.get(f[1], ""), template)


def fields_at(record: Record, index: int) -> dict[str, str]:
    """The fields at an action: what was known just before it, and the action itself."""
    before = record["actions"][:index]
    action = record["actions"][index] if index < len(record["actions"]) else None
    asked = record["metadata"].get("asked")
    said = [(a, is_prompted(a, record) or a["tool"] in THINKING) for a in before]
    return {
        "question": record["question"],
        "asked": asked if isinstance(asked, str) else record["question"],
        "context": "\n".join(t for a, thought in said if not thought and (t := text_of(a["output"]))),
        "notes": "\n".join(t for a, thought in said if thought and (t := produced(a, record))),
        "path": " → ".join(a["tool"] for a in before),
        "tool": action["tool"] if action else "",
        "input": plain(action["input"]) if action else "",
        "output": text_of(action["output"]) if action else "",
        "given": _given(action, record) if action else "",
        "produced": produced(action, record) if action else "",
        "step": str(action["step"]) if action else "",
        "answer": record["final_answer"] or "",
        "domain": record["domain"],
        "task_id": record["task_id"],
    }


def instructed(record: Record, index: int) -> dict[str, str]:
    """The same for an instruction: context, notes and path are the step's own where it has them."""
    action, fields = record["actions"][index], fields_at(record, index)
    given = action["input"] if isinstance(action["input"], dict) else {}
    if is_prompted(action, record):
        known = "\n".join((fields["context"], fields["notes"]))
        more = added(prompt_of(action), record["question"], known)
        fields["context"] = "\n".join(t for t in (fields["context"], more) if t)
    return fields | {name: text_of(given[name]) for name in OWN if given.get(name) not in (None, "")}


def added(prompt: str, question: str, seen: str) -> str:
    """The lines of a prompt that say something beside the question and what was seen before it."""
    kept: list[str] = []
    labels: list[str] = []
    whole = {_BULLET.sub("", line.strip()) for line in seen.splitlines()}
    for line in (prompt.replace(question, "") if question.strip() else prompt).splitlines():
        text = _BULLET.sub("", line.strip())
        if not text or _LABEL.fullmatch(text):
            labels = [line] if text.endswith(":") else labels if text else []
        elif text not in whole and (len(text) < SHORT or text not in seen):
            kept += [*labels, line]
            labels = []
    return "\n".join(kept).strip()


def _given(action: Record, record: Record) -> str:
    """The prompt of a step that was given one, with the question if it lacks that; else empty."""
    if not is_prompted(action, record):
        return ""
    text, question = prompt_of(action), record["question"]
    return text if question.strip() in text else f"Question: {question}\n\n{text}".strip()


def value_at(action: Record, source: str) -> Any:
    """What a template's ``response_from`` names; an input that is a text is the field itself. None: there is none."""
    name, *path = source.split(".")
    value = action["output" if name == "action_output" else "input"]
    if name == "action_input" and len(path) == 1 and isinstance(value, str):
        return value
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value
