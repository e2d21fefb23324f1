"""Records with a list of actions: ``{task_id, domain, question, actions: [{step, tool, input, output}], …}``."""

from __future__ import annotations

from typing import Any

from recollect.trajectories.keys import (
    ACTIONS,
    INPUT,
    OUTPUT,
    TOOL,
    NotATrajectory,
    answer_in,
    find,
    question_in,
    text_of,
    unified,
)
from recollect.trajectories.schema import Record, kind


def read(row: Record) -> Record:
    """A record whose actions stand under any of their names; one without actions has an answer at least."""
    question, asked = question_in(row)
    answer, said = answer_in(row)
    name = find(row, ACTIONS)
    if question is None:
        raise NotATrajectory(f"there is no question; it has {', '.join(map(str, row)) or 'nothing'}")
    if name is None and answer is None:
        raise NotATrajectory(f"there are neither actions nor an answer; it has {', '.join(map(str, row))}")
    given = row[name] if name else []
    if not isinstance(given, list):
        raise NotATrajectory(f"{name} is no list but {kind(given)}")
    made = [_action(item, i) for i, item in enumerate(given, 1)]
    more = {str(i): left for i, (_, left) in enumerate(made) if left}
    if answer is None:
        answer = _finalized([a for a, _ in made])
    extra = {"action_fields": more} if more else None
    return unified(
        row, [asked, said, name], question=question, actions=[a for a, _ in made], final_answer=answer, more=extra
    )


def _action(item: Any, place: int) -> tuple[Record, Record]:
    """(the action, what else the source says about it)."""
    if not isinstance(item, dict):
        raise NotATrajectory(f"action {place} is no object but {kind(item)}")
    function = item.get("function")
    inner = {**item, **function} if isinstance(function, dict) else item
    tool, given, shown = find(inner, TOOL), find(inner, INPUT), find(inner, OUTPUT)
    if isinstance(function, dict):
        tool = "name" if function.get("name") else tool
    if tool is None:
        raise NotATrajectory(f"action {place} names no tool; it has {', '.join(map(str, item)) or 'nothing'}")
    step = item.get("step", place)
    whole = isinstance(step, int) and not isinstance(step, bool)
    made = {
        "step": step if whole else place,
        "tool": text_of(inner[tool]),
        "input": inner[given] if given else "",
        "output": inner[shown] if shown else "",
    }
    used = {tool, given, shown, "function" if isinstance(function, dict) else None, "step" if whole else None}
    return made, {k: v for k, v in inner.items() if k not in used}


def _finalized(actions: list[Record]) -> str | None:
    """The answer that the last action gives, where it is one that ends an attempt."""
    if actions and actions[-1]["tool"] in ("finalize", "answer", "finish", "submit"):
        value = actions[-1]["input"] or actions[-1]["output"]
        if isinstance(value, dict) and len(value) == 1:
            (value,) = value.values()
        return text_of(value)
    return None
