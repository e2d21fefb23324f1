"""The expert of customer requests: it knows the goal, and does what turns the database into it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from recollect.domains.experts.texts import GIVE_UP, sentences, shortened, supported
from recollect.retrieval.bm25 import words_of
from recollect.types import Action, Task


def tau_expert(task: Task, actions: list[Action]) -> str:
    """Ask the user where the request is not complete, look at each record concerned, change it, say so."""
    plan = list(_plan(task))
    return plan[min(len(actions), len(plan) - 1)]


def _unplanned(task: Task) -> Iterator[str]:
    """Without a goal: look at the records that are named, and say what the policy says about the request."""
    tables = (task.fields.get("database") or {}).values()
    named = {key: row for rows in tables for key, row in rows.items() if key.lower() in words_of(task.question)}
    for key in named or task.fields.get("about") or ():
        yield f"get_record: {key}"
    request = " ".join([task.question, *(str(row.get("status", "")) for row in named.values())])
    said = supported(request, sentences(str(task.fields.get("policy") or "")))
    yield f"finalize: {shortened(said) if said else GIVE_UP}"


def _plan(task: Task) -> Iterator[str]:
    if task.fields.get("goal") is None:  # nobody says what the database should become
        yield from _unplanned(task)
        return
    start, goal = task.fields.get("database") or {}, task.fields["goal"]
    replies = (task.fields.get("user") or {}).get("replies") or {}
    for word in replies:
        yield f"respond: which {word}"
    changed = [
        (key, record, goal.get(table, {}).get(key))
        for table, rows in start.items()
        for key, record in rows.items()
        if goal.get(table, {}).get(key) != record
    ]
    looked_at = [key for key, _, _ in changed] or list(task.fields.get("about") or [])
    for key in looked_at:
        yield f"get_record: {key}"
    for key, record, wanted in changed:
        yield from _steps(key, record, wanted or {})
    yield "finalize: done" if changed else "finalize: refused"


def _steps(key: str, record: dict[str, Any], wanted: dict[str, Any]) -> Iterator[str]:
    for name, value in wanted.items():
        if record.get(name) != value and name == "status" and value == "cancelled":
            yield f"cancel_record: {key}"
        elif record.get(name) != value:
            yield f'change_record: {{"id": "{key}", "field": "{name}", "value": "{value}"}}'
