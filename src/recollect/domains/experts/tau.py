"""The expert of customer requests: it knows the goal, and does what turns the database into it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from recollect.domains.experts.reading import GIVE_UP
from recollect.types import Action, Task


def tau_expert(task: Task, actions: list[Action]) -> str:
    """Ask the user where the request is not complete, look at each record concerned, change it, say so."""
    plan = list(_plan(task))
    return plan[min(len(actions), len(plan) - 1)]


def _plan(task: Task) -> Iterator[str]:
    start, goal = task.fields.get("database") or {}, task.fields.get("goal")
    replies = (task.fields.get("user") or {}).get("replies") or {}
    for word in replies:
        yield f"respond: which {word}"
    changed = [
        (key, record, (goal or start)[table].get(key))
        for table, rows in start.items()
        for key, record in rows.items()
        if goal is not None and goal.get(table, {}).get(key) != record
    ]
    looked_at = [key for key, _, _ in changed] or list(task.fields.get("about") or [])
    for key in looked_at:
        yield f"get_record: {key}"
    for key, record, wanted in changed:
        yield from _steps(key, record, wanted or {})
    if goal is None:  # nobody says what the database should become
        yield f"finalize: {GIVE_UP}"
    else:
        yield "finalize: done" if changed else "finalize: refused"


def _steps(key: str, record: dict[str, Any], wanted: dict[str, Any]) -> Iterator[str]:
    for name, value in wanted.items():
        if record.get(name) != value and name == "status" and value == "cancelled":
            yield f"cancel_record: {key}"
        elif record.get(name) != value:
            yield f'change_record: {{"id": "{key}", "field": "{name}", "value": "{value}"}}'
