"""Where sources keep what: the names of each field, and the rest, which becomes metadata."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recollect.trajectories.schema import FIELDS, Record

QUESTION = ("question", "task", "problem", "prompt", "query", "instruction", "title")
ANSWER = ("final_answer", "final", "answer", "solution", "result", "completion")
ACTIONS = ("actions", "steps", "tool_calls", "calls")
TOOL = ("tool", "name", "type")
INPUT = ("input", "args", "request", "arguments", "parameters")
OUTPUT = ("output", "response", "observation")
ID = ("task_id", "id", "instance_id", "question_id", "uid", "run_id")


class NotATrajectory(ValueError):
    """A record cannot be read; the message says why."""


def find(row: Record, names: Sequence[str]) -> str | None:
    """The first of some names under which a row holds something."""
    return next((name for name in names if row.get(name) is not None), None)


def text_of(value: Any) -> str:
    """A value as text: strings as they are, all else as JSON."""
    if isinstance(value, str):
        return value
    from pydantic_core import to_json

    return to_json(value).decode()


def question_in(row: Record) -> tuple[str | None, str | None]:
    """(the question, the key that was used up for it). An object or a list of messages is looked into and kept."""
    for name in QUESTION:
        value = row.get(name)
        if isinstance(value, str):
            return value, name
        if isinstance(value, dict) and (inner := question_in(value)[0]) is not None:
            return inner, None
        if isinstance(value, list):
            asked = [m.get("content") for m in value if isinstance(m, dict) and m.get("role") == "user"]
            if asked and isinstance(asked[-1], str):
                return asked[-1], None
    return None, None


def answer_in(row: Record) -> tuple[str | None, str | None]:
    """(the answer, the key that was used up for it)."""
    name = find(row, ANSWER)
    if name is None:
        return None, None
    value = row[name]
    return (
        (value, name) if isinstance(value, str) else (text_of(value), None if isinstance(value, dict | list) else name)
    )


def success_in(row: Record) -> bool | None:
    """Whether the attempt succeeded, as the source says it."""
    value = row.get("success")
    if value is None or isinstance(value, bool):
        return value
    if value in (0, 1):
        return bool(value)
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise NotATrajectory(f"success is {text_of(value)[:60]}; it has to be true, false or null")


def rest(row: Record, used: Sequence[str | None], more: Record | None = None) -> Record:
    """The metadata: the source's own, and every field that is not a part of the unified format."""
    given = row.get("metadata")
    made: Record = dict(given) if isinstance(given, dict) else {} if given is None else {"metadata": given}
    empty = [k for k in FIELDS if row.get(k) is None]  # a field of the format without a value says nothing more
    left = {k: v for k, v in row.items() if k not in used and k not in empty and k != "metadata"}
    for name, value in (*left.items(), *(more or {}).items()):
        made[name if name not in made else _free(made, f"record.{name}")] = value
    return made


def _free(taken: Record, name: str) -> str:
    while name in taken:
        name += "'"
    return name


def unified(row: Record, used: Sequence[str | None], **fields: Any) -> Record:
    """A unified record; what a format does not know otherwise comes from the usual fields."""
    more = fields.pop("more", None)
    name = find(row, ID)
    consumed = [*used, name, "domain", "success", "reward"]
    return {
        "task_id": text_of(row[name]) if name else "",
        "domain": row.get("domain"),
        "question": fields["question"],
        "actions": fields["actions"],
        "final_answer": fields.get("final_answer"),
        "success": fields["success"] if "success" in fields else success_in(row),
        "reward": row.get("reward"),
        "metadata": rest(row, consumed, more),
    }


def action(step: int, tool: str, given: Any = "", output: Any = "") -> Record:
    """One action."""
    return {"step": step, "tool": tool, "input": given, "output": output}
