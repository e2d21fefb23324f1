"""The names that sources use for each field; every other field becomes metadata."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from recollect.trajectories.schema import FIELDS, Record

QUESTION = ("question", "task", "problem", "prompt", "query", "instruction", "title")
ANSWER = ("final_answer", "final", "answer", "solution", "result", "completion")
ACTIONS = ("actions", "steps", "tool_calls", "calls", "trajectory", "history")
TOOL = ("tool", "tool_name", "action", "name", "type")
INPUT = ("input", "action_input", "tool_input", "args", "request", "arguments", "parameters")
OUTPUT = ("output", "action_output", "tool_output", "response", "observation")
THOUGHT = ("thought", "reasoning", "content", "text")  # of an action that names no tool
TOTAL = ("total", "reward", "score", "value", "overall")  # in a reward that is an object
UNKNOWN = "unknown"  # the tool of an action whose source does not name it
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
        if isinstance(value, str) and value.strip():
            return value, name
        if isinstance(value, dict) and (inner := question_in(value)[0] or find_text(value)) is not None:
            return inner, None
        if isinstance(value, list):
            asked = [m.get("content") for m in value if isinstance(m, dict) and m.get("role") == "user"]
            if asked and isinstance(asked[-1], str):
                return asked[-1], None
    return None, None


def find_text(value: Record) -> str | None:
    """The text of an object that is a part of a message."""
    return next((value[name] for name in ("text", "content") if isinstance(value.get(name), str)), None)


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
    if isinstance(value, str) and value.strip().lower() in ("true", "false", "yes", "no"):
        return value.strip().lower() in ("true", "yes")
    raise NotATrajectory(f"success is {text_of(value)[:60]}; it has to be true, false or null")


def reward_in(row: Record) -> tuple[float | int | None, Any]:
    """(the reward as one number, its parts). Of an object the total is the number, and the rest are parts."""
    value = row.get("reward")
    if isinstance(value, dict):
        name = next((n for n in TOTAL if is_number(value.get(n))), None)
        return (value[name] if name else None), {k: v for k, v in value.items() if k != name}
    if isinstance(value, list):
        return None, value
    if value is None or (is_number(value) and math.isfinite(value)):
        return value, None
    try:
        number = float(value) if isinstance(value, str | bool) else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise NotATrajectory(f"reward is {text_of(value)[:60]}; it has to be a number, an object with a total, or null")
    return number, None


def is_number(value: Any) -> bool:
    """Whether a value is a finite number; true and false are not numbers."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


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
    """A unified record; what the format does not provide is taken from the usual fields."""
    reward, parts = reward_in(row)
    more = (fields.pop("more", None) or {}) | ({"parts": parts} if parts else {})
    name = find(row, ID)
    consumed = [*used, name, "domain", "success", "reward"]
    return {
        "task_id": text_of(row[name]) if name else "",
        "domain": domain_in(row),
        "question": fields["question"],
        "actions": fields["actions"],
        "final_answer": fields.get("final_answer"),
        "success": fields["success"] if "success" in fields else success_in(row),
        "reward": reward,
        "metadata": rest(row, consumed, more),
    }


def domain_in(row: Record) -> Any:
    """The domain that a record names, in lower case."""
    value = row.get("domain")
    return value.strip().lower() if isinstance(value, str) else value


def action(step: int, tool: str, given: Any = "", output: Any = "") -> Record:
    """One action."""
    return {"step": step, "tool": tool, "input": given, "output": output}
