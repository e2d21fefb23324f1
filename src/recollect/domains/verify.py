"""Checks of an answer against accepted ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recollect.rewards.domain_scoring import same_words
from recollect.rewards.math_answers import math_reward_string_equal
from recollect.types import Task

if TYPE_CHECKING:
    from recollect.agents.session import Session


def says(task: Task, answer: str) -> bool | None:
    """Whether a text gives an accepted answer, in a few words; None without accepted answers."""
    return None if not task.answers else same_words(answer, task)


def equals(task: Task, answer: str) -> bool | None:
    """The same for mathematics: the last number, or the same expression."""
    return None if not task.answers else bool(math_reward_string_equal(answer, task))


async def said(task: Task, session: Session, answer: str) -> bool | None:
    """``says`` as a domain's check."""
    return says(task, answer)


async def equal(task: Task, session: Session, answer: str) -> bool | None:
    """``equals`` as a domain's check."""
    return equals(task, answer)
