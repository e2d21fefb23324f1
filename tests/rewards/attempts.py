"""Attempts at tasks, made by hand."""

from __future__ import annotations

from typing import Any, Literal

from recollect.types import Completion, Task, Trajectory, Turn


def task(*answers: str, question: str = "q", **fields: Any) -> Task:
    return Task("t", question, answers=answers, fields=fields)


def attempt(
    *texts: str, answer: str | None = None, stop: Literal["stop", "length"] = "stop", ids: int = 3
) -> Trajectory:
    turns = [Turn("agent", (1,), Completion((5,) * ids, (-0.1,) * ids, stop, 0, text)) for text in texts]
    return Trajectory("t", 0, turns, answer=answer if answer is not None else (texts[-1] if texts else ""))
