"""The question of a record that has none under its name: in its id, in what surrounds it, or inside a step."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from recollect.trajectories.field_names import QUESTION, question_in
from recollect.trajectories.schema import Record

AROUND = ("env", "environment", "input", "inputs", "metadata", "info")
_ID = re.compile(r"\w+\s*(?:no\.?|nr\.?|number)?[\s#:_-]*\d+", re.IGNORECASE)
_LABELLED = re.compile(
    r"(?:^|\n)\s*(?:original |user )?(?:question|task|problem)[ \t]*:\s*"
    r"(\S.*?)[ \t]*(?:\n\s*\n|\n---|$|\n(?=\w[\w ]*:))",
    re.IGNORECASE | re.DOTALL,
)
_QUOTED = re.compile(r"(?<=[\s:(])(?:'(.{3,})'|\"(.{3,})\"|“(.{3,})”)(?=[\s.,;)!]|$)", re.DOTALL)
FIRST = 3  # steps that are looked into for quotation marks


def find_question(row: Record, actions: list[Record]) -> str:
    """The question, from wherever it is; empty if it is nowhere."""
    found = (
        *(question_in(row[name])[0] for name in AROUND if isinstance(row.get(name), dict)),
        as_question(row.get("task_id")),
        *(question_in(step)[0] for step in _steps(row)),
        *(_asked(a["input"]) for a in actions),
        *(_match(_LABELLED, text) for a in actions for text in _texts(a["input"])),
        *(_match(_QUOTED, text) for a in actions[:FIRST] for text in _texts(a["input"])),
    )
    return next((text.strip() for text in found if text and text.strip()), "")


def as_question(value: Any) -> str | None:
    """An id that is a text to read and not a name with a number."""
    if not isinstance(value, str) or _ID.fullmatch(value.strip()):
        return None
    words = value.split()
    return value if value.rstrip().endswith("?") or len(words) > 1 else None


def _steps(row: Record) -> Iterator[Record]:
    for name in ("steps", "actions", "trajectory"):
        items = row.get(name)
        yield from (s for s in (items if isinstance(items, list) else ()) if isinstance(s, dict) and "question" in s)


def _asked(given: Any) -> str | None:
    """The question in what a tool was given under a name of its own; a prompt is more than the question."""
    names = [n for n in (*QUESTION, "original_question") if n not in ("prompt", "query", "instruction", "title")]
    return next((given[n] for n in names if isinstance(given.get(n), str)), None) if isinstance(given, dict) else None


def _texts(value: Any) -> list[str]:
    values = value.values() if isinstance(value, dict) else [value]
    return [v for v in values if isinstance(v, str)]


def _match(pattern: re.Pattern[str], text: str) -> str | None:
    found = pattern.search(text)
    return next((g for g in found.groups() if g), None) if found else None
