"""Answering all questions of a task side by side, each in a conversation of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from recollect.agents.session import Session
from recollect.data.questions import Question, questions_of
from recollect.types import Task

AnswerQuestion = Callable[[Question, Session], Awaitable[str]]


async def ask_all(task: Task, session: Session, answer: AnswerQuestion) -> str:
    """All answers, and one text that joins them. Turns are recorded in the order of the questions."""
    questions = questions_of(task)
    branches = [session.branch(f"question-{i}", i) for i in range(1, len(questions) + 1)]
    work = [answer(question, branch) for question, branch in zip(questions, branches, strict=True)]
    answers = await asyncio.gather(*work, return_exceptions=True)
    for branch in branches:
        session.join(branch)
    failed = [a for a in answers if isinstance(a, BaseException)]
    if failed:
        raise next((f for f in failed if f is session.policy_error), failed[0])
    said = [str(a) for a in answers]
    session.trajectory.answers = said
    session.trajectory.stop = "answered"
    return said[0] if len(said) == 1 else "\n".join(f"{i}. {text.strip()}" for i, text in enumerate(said, 1))
