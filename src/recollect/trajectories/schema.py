"""The unified trajectory: its published JSON Schema, and a fast check of the same rules."""

from __future__ import annotations

import math
from typing import Any

from recollect.registries import DOMAINS
from recollect.runtime.error_text import listed

Record = dict[str, Any]
FIELDS = ("task_id", "domain", "question", "actions", "final_answer", "success", "reward", "metadata")
ACTION_FIELDS = ("step", "tool", "input", "output")

_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "recollect trajectory",
    "description": "One attempt of an agent at one task.",
    "type": "object",
    "required": list(FIELDS),
    "additionalProperties": False,
    "properties": {
        "task_id": {"type": "string", "minLength": 1, "description": "Unique within a file."},
        "domain": {"type": "string"},
        "question": {"type": "string", "description": "What was asked; empty where the source does not say."},
        "actions": {
            "type": "array",
            "items": {
                "type": "object",
                "required": list(ACTION_FIELDS),
                "additionalProperties": False,
                "properties": {
                    "step": {"type": "integer", "description": "The number that the source gives it, else its place."},
                    "tool": {"type": "string", "minLength": 1},
                    "input": {"description": "What the agent gave the tool: a text, or any JSON value."},
                    "output": {"description": "What it was shown: a text, or any JSON value."},
                },
            },
        },
        "final_answer": {"type": ["string", "null"]},
        "success": {"type": ["boolean", "null"], "description": "Null: nobody has checked."},
        "reward": {"type": ["number", "null"]},
        "metadata": {"type": "object", "description": "Everything else that the source held."},
    },
}


def json_schema() -> dict[str, Any]:
    """The schema, with the names of the domains."""
    return {**_SCHEMA, "properties": {**_SCHEMA["properties"], "domain": {"enum": list(DOMAINS)}}}


def problem(record: Any) -> str | None:
    """What keeps a record from being a unified trajectory; None when it is one."""
    if not isinstance(record, dict):
        return f"a trajectory is an object, not {kind(record)}"
    if record.keys() != set(FIELDS):
        missing = [f for f in FIELDS if f not in record]
        extra = [k for k in record if k not in FIELDS]
        return f"it lacks {', '.join(missing)}" if missing else f"it has the unknown field {extra[0]}"
    if not isinstance(record["task_id"], str) or not record["task_id"]:
        return "task_id has to be a text that is not empty"
    if not isinstance(record["domain"], str) or record["domain"] not in DOMAINS:
        return f"the domain {record['domain']!r} is unknown; known: {', '.join(DOMAINS)}"
    if not isinstance(record["question"], str):
        return f"question has to be a text, not {kind(record['question'])}"
    if not isinstance(record["actions"], list):
        return f"actions has to be a list, not {kind(record['actions'])}"
    for i, action in enumerate(record["actions"], 1):
        if (wrong := _action_problem(action)) is not None:
            return f"action {i}: {wrong}"
    return _outcome_problem(record)


def _action_problem(action: Any) -> str | None:
    if not isinstance(action, dict):
        return f"it is no object but {kind(action)}"
    if action.keys() != set(ACTION_FIELDS):
        return f"it has {listed(action) or 'nothing'} instead of {', '.join(ACTION_FIELDS)}"
    if not isinstance(action["step"], int) or isinstance(action["step"], bool):
        return f"step has to be a whole number, not {kind(action['step'])}"
    if not isinstance(action["tool"], str) or not action["tool"]:
        return "tool has to be a text that is not empty"
    return None


def _outcome_problem(record: Record) -> str | None:
    answer, success, reward = record["final_answer"], record["success"], record["reward"]
    if answer is not None and not isinstance(answer, str):
        return f"final_answer has to be a text, not {kind(answer)}"
    if success is not None and not isinstance(success, bool):
        return f"success has to be true, false or null, not {kind(success)}"
    if reward is not None and (isinstance(reward, bool) or not isinstance(reward, int | float)):
        return f"reward has to be a number, not {kind(reward)}"
    if isinstance(reward, float) and not math.isfinite(reward):
        return f"reward is {reward}, which is no number"
    if not isinstance(record["metadata"], dict):
        return f"metadata has to be an object, not {kind(record['metadata'])}"
    return None


_KINDS = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}


def kind(value: Any) -> str:
    """A value's type in words."""
    return _KINDS.get(type(value), "a number" if isinstance(value, int | float) else type(value).__name__)
