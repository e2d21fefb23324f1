"""What a step produced: the words or the call that its agent wrote, never the prompt that it was given.

Some systems record what a model was told as a step's input and what it said as its output; agents of recollect write
the input, and are shown the output.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from recollect.trajectories.field_names import text_of
from recollect.trajectories.schema import Record

ENDING = ("finalize", "answer", "finish", "submit")
THINKING = ("reason", "reason_hop", "decompose", "plan", "think", *ENDING)  # they ask nothing of the world
COMMANDS = ("command", "cmd", "code")
WORDS = frozenset(("thought", "plan", "answer", "final_answer", "text", "content", "response", "input", "result"))
QUIET = ("", "ok")  # what recollect's own tools say to a thought
_PROMPT = re.compile(r"\s*(?:original |user )?(?:question|task|problem|prompt|context)\s*:", re.IGNORECASE)


def is_prompted(action: Mapping[str, Any], record: Mapping[str, Any]) -> bool:
    """Whether a step's input is a prompt, so that what was said to it is the output."""
    given, shown = action["input"], action["output"]
    if isinstance(record["metadata"].get("turns"), list):  # an attempt of recollect
        return False
    if shown is None or shown == {} or shown == [] or (isinstance(shown, str) and shown.strip() in QUIET):
        return False
    if isinstance(given, dict):
        if isinstance(given.get("prompt"), str):
            return True
        return action["tool"] in THINKING and not given.keys() & WORDS
    if action["tool"] not in THINKING:
        return False
    text = plain(given).strip()
    if not text:
        return True
    asked = record["question"].strip()
    return text != text_of(shown).strip() and (bool(_PROMPT.match(text)) or (len(asked) > 3 and asked in text))


def produced(action: Record, record: Mapping[str, Any]) -> str:
    """The text that is to be learnt from a step of a trajectory."""
    if is_prompted(action, record):
        return text_of(action["output"])
    if ends(action, record) and not isinstance(record["metadata"].get("turns"), list):
        return record["final_answer"]
    given = action["input"]
    if isinstance(given, dict) and given.keys() <= set(COMMANDS):
        return "\n".join(v if isinstance(v, str) else text_of(v) for v in given.values() if v is not None)
    return plain(given)


def ends(action: Record, record: Mapping[str, Any]) -> bool:
    """Whether an action is the last one and gives the answer that the trajectory has."""
    actions = record.get("actions") or [None]
    last = actions[-1] is action
    return last and action["tool"] in ENDING and record.get("final_answer") is not None


def prompt_of(action: Record) -> str:
    """The prompt of a step that was given one."""
    given = action["input"]
    if isinstance(given, dict) and not isinstance(given.get("prompt"), str):
        return "\n".join(v if isinstance(v, str) else text_of(v) for v in given.values() if v is not None)
    return given["prompt"] if isinstance(given, dict) else plain(given)


def plain(value: Any) -> str:
    """An input as text; for an object with a single text, that text."""
    if isinstance(value, dict) and len(value) == 1:
        (only,) = value.values()
        value = only if isinstance(only, str) else value
    return "" if value is None else text_of(value)
