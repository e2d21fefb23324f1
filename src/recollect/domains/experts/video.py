"""The expert of captions."""

from __future__ import annotations

import re

from recollect.domains.experts.reading import best, known_answer, outputs, shortened
from recollect.types import Action, Task

_AT = re.compile(r"What does (\w+) hold at (\d+:\d\d)\?")


def video_expert(task: Task, actions: list[Action]) -> str:
    """Load the captions, say which one matters, answer with it."""
    if not actions:
        return "load_context:"
    lines = [line for text in outputs(actions, "load_context") for line in text.splitlines()]
    line = _needed(task.question, lines)
    if len(actions) == 1:
        return f"reason: {shortened(line.rstrip('.'))}"
    held = re.search(r" holds (\w+)\.?$", line) if _AT.fullmatch(task.question.strip()) else None
    answer = held[1] if held else known_answer(task, "\n".join(lines))
    return f"finalize: {answer if answer is not None else shortened(_untimed(line))}"


def _needed(question: str, lines: list[str]) -> str:
    asked = _AT.fullmatch(question.strip())
    if asked:
        return next((line for line in lines if line.startswith(f"{asked[2]} {asked[1]} ")), "none")
    if lines and re.search(r"\b(first|begin|beginning|start|opening)\b", question):
        return lines[0]
    if lines and re.search(r"\b(last|end|ending|finally)\b", question):
        return lines[-1]
    return best(question, lines) or "none"


def _untimed(line: str) -> str:
    return re.sub(r"^[\d:]+ ", "", line)
