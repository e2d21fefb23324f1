"""The expert of captions."""

from __future__ import annotations

import re

from recollect.domains.experts.texts import GIVE_UP, known_answer, outputs, shortened, supported
from recollect.types import Action, Task

_SCENE = r"(?:(?:of|in) the (?:video|clip|film|movie|recording))?\W*"
_WHAT = r"(?:what (?:happens|is shown|is seen|occurs|do we see|can be seen)|describe|how does)\b.*?"
_FIRST = re.compile(
    rf"{_WHAT}(?:(?:first|opening) (?:scene|shot|caption|moment|frame)|beginning|start|begin) ?{_SCENE}", re.IGNORECASE
)
_LAST = re.compile(
    rf"{_WHAT}(?:(?:last|final|closing) (?:scene|shot|caption|moment|frame)|end|ending) ?{_SCENE}", re.IGNORECASE
)
_AT = re.compile(r"What does (\w+) hold at (\d+:\d\d)\?")


def video_expert(task: Task, actions: list[Action]) -> str:
    """Load the captions, say which one matters, answer with it."""
    if not actions:
        return "load_context:"
    lines = [line for text in outputs(actions, "load_context") for line in text.splitlines()]
    line = _needed(task.question, lines)
    if len(actions) == 1:
        return f"reason: {shortened(line.rstrip('.')) if line else 'no caption is about this'}"
    if _AT.fullmatch(task.question.strip()):
        held = re.search(r" holds (\w+)\.?$", line or "")
        return f"finalize: {held[1] if held else GIVE_UP}"
    answer = known_answer(task, "\n".join(lines))
    return f"finalize: {answer if answer is not None else shortened(_untimed(line)) if line else GIVE_UP}"


def _needed(question: str, lines: list[str]) -> str | None:
    """The caption that a question is about; None if there is none."""
    asked = _AT.fullmatch(question.strip())
    if asked:
        return next((line for line in lines if line.startswith(f"{asked[2]} {asked[1]} ")), None)
    if lines and _FIRST.fullmatch(question.strip()):
        return lines[0]
    if lines and _LAST.fullmatch(question.strip()):
        return lines[-1]
    return supported(question, lines)


def _untimed(line: str) -> str:
    return re.sub(r"^[\d:]+ ", "", line)
