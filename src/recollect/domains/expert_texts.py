"""What the scripted experts that read share: words, sentences, and the accepted answer in a text.

An expert of a domain chooses the next action from the task and what was done so far, without a model. On made-up tasks
experts are perfect. On others they do what a script can: where the accepted answer stands in what they have read they
give it, otherwise a sentence that is about what was asked; they compute what they understand as a whole. Where they
cannot they say so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from recollect.retrieval.bm25 import words_of
from recollect.rewards.text import normalize
from recollect.types import Action, Task

_COMMON = """a an and are at by did do does for from happens has have how in is it its of on or that the their there
they this to was were what when where which who whom whose why with"""
COMMON = frozenset(_COMMON.split())
LONGEST = 300  # characters of a sentence that is said
SUPPORT = 0.5  # share of a question's own words that a sentence has to hold to be an answer
GIVE_UP = "I cannot answer this."  # no answer to any reward


def content(text: str) -> set[str]:
    """The words of a text that say what it is about."""
    return {w for w in words_of(text) if w not in COMMON}


def best(question: str, lines: Sequence[str]) -> str:
    """The line that shares most words with a question, the earliest of equals."""
    wanted = content(question)
    return max(lines, key=lambda line: len(wanted & content(line)), default="")


def supported(question: str, lines: Sequence[str]) -> str | None:
    """The line that shares most words with a question, if it is about the same; else None."""
    wanted, line = content(question), best(question, lines)
    return line if wanted and len(wanted & content(line)) >= SUPPORT * len(wanted) else None


def sentences(text: str) -> list[str]:
    """The sentences of a text; an initial ends none."""
    return [s.strip() for s in re.split(r"(?<=[.!?])(?<!\b[A-Z]\.)\s+|\n", text) if s.strip()]


def known_answer(task: Task, read: str) -> str | None:
    """The accepted answer that stands in what was read, as whole words."""
    words = f" {normalize(read)} "
    return next((a for a in task.answers if normalize(a) and f" {normalize(a)} " in words), None)


def outputs(actions: Sequence[Action], tool: str) -> list[str]:
    """What a tool has said so far."""
    return [a.output for a in actions if a.tool == tool]


def shortened(text: str) -> str:
    """One line that is not too long."""
    return " ".join(text.split())[:LONGEST]
