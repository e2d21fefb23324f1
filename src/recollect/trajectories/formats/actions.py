"""Records with a list of actions: ``{task_id, domain, question, actions: [{step, tool, input, output}], …}``."""

from __future__ import annotations

from typing import Any

from recollect.runtime.error_text import listed
from recollect.trajectories.field_names import (
    ACTIONS,
    INPUT,
    OUTPUT,
    THOUGHT,
    TOOL,
    UNKNOWN,
    NotATrajectory,
    answer_in,
    find,
    question_in,
    text_of,
    unified,
)
from recollect.trajectories.produced import ENDING, produced
from recollect.trajectories.schema import Record, kind

OUTCOME = ("final_answer", "success", "reward")  # one of them, or actions, makes a record an attempt


def read(row: Record) -> Record:
    """A record whose actions stand under any of their names; one without actions has an outcome at least."""
    question, asked = question_in(row)
    answer, said = answer_in(row)
    name = find(row, ACTIONS)
    if question is None and name is None:
        raise NotATrajectory(f"there is no question; it has {listed(row) or 'nothing'}")
    if name is None and answer is None and not row.keys() & {*ACTIONS, *OUTCOME}:
        raise NotATrajectory(f"there are neither actions nor an answer; it has {listed(row)}")
    given = row[name] if name else []
    if not isinstance(given, list):
        raise NotATrajectory(f"{name} is no list but {kind(given)}")
    made = [one(item, i) for i, item in enumerate(given, 1)]
    more = {str(i): left for i, (_, left) in enumerate(made) if left}
    if answer is None:
        answer = finalized(row, question or "", [a for a, _ in made])
    extra = {"action_fields": more} if more else None
    return unified(
        row, [asked, said, name], question=question or "", actions=[a for a, _ in made], final_answer=answer, more=extra
    )


def one(item: Any, place: int) -> tuple[Record, Record]:
    """(the action, what else the source says about it)."""
    if not isinstance(item, dict):
        raise NotATrajectory(f"action {place} is no object but {kind(item)}")
    nested = next((n for n in ("function", "action") if isinstance(item.get(n), dict)), None)
    inner = {**{k: v for k, v in item.items() if k != nested}, **item[nested]} if nested else item
    tool, given, shown = find(inner, TOOL), find(inner, INPUT), find(inner, OUTPUT)
    if nested == "function" and inner.get("name"):
        tool = "name"
    thought = find(inner, THOUGHT) if tool is None and given is None else None
    if tool is None and thought is None and not inner.keys() & {*TOOL, *INPUT, *OUTPUT}:
        raise NotATrajectory(f"action {place} names no tool; it has {listed(item) or 'nothing'}")
    step = item.get("step", place)
    whole = isinstance(step, int) and not isinstance(step, bool)
    given = thought or given
    made = {
        "step": step if whole else place,
        "tool": (text_of(inner[tool]) if tool else "reason" if thought else UNKNOWN) or UNKNOWN,
        "input": inner[given] if given else "",
        "output": inner[shown] if shown else "",
    }
    used = {tool, given, shown, "step" if whole else None}
    return made, {k: v for k, v in inner.items() if k not in used}


def finalized(row: Record, question: str, actions: list[Record]) -> str | None:
    """The answer that the last action gives, where it is one that ends an attempt."""
    if not actions or actions[-1]["tool"] not in ENDING:
        return None
    about = row.get("metadata")
    return produced(actions[-1], {"question": question, "metadata": about if isinstance(about, dict) else {}})
