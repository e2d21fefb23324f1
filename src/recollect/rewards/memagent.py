"""MemAgent's reward for HotpotQA, as its definition has it."""

from __future__ import annotations

from recollect.rewards.decorator import reward
from recollect.types import Task

LOOKED_AT = 300  # last characters of an answer
MARK = "\\boxed"
REPLACED = (  # one after another, in both texts, before they are compared
    *(("\n", ""), ("\\!", ""), ("\\\\", "\\"), ("tfrac", "frac"), ("dfrac", "frac"), ("\\left", ""), ("\\right", "")),
    *(("^{\\circ}", ""), ("^\\circ", ""), ("\\$", ""), ("\\%", ""), (" .", " 0."), ("{.", "{0."), (" ", "")),
)


@reward(inline=True, gold=True)
def memagent_em(answer: str, task: Task) -> float:
    r"""1 when the last \boxed{…} in the last 300 characters equals an accepted answer but for case and spaces."""
    boxed = _boxed(answer[-LOOKED_AT:].lower())
    return float(boxed is not None and any(_stripped(boxed) == _stripped(gold.lower()) for gold in task.answers))


def _boxed(text: str) -> str | None:
    r"""What the last ``\boxed{…}`` holds; a ``\boxed`` with a space after it goes before those, up to a dollar sign."""
    _, spaced, rest = text.rpartition(f"{MARK} ")
    if spaced:
        return rest.split("$")[0]
    _, found, rest = text.rpartition(MARK)
    if not found or not rest.startswith("{"):
        return None
    depth = 0
    for i, letter in enumerate(rest):
        depth += (letter == "{") - (letter == "}")
        if depth == 0:
            return rest[1:i]
    return None


def _stripped(text: str) -> str:
    for old, new in REPLACED:
        text = text.replace(old, new)
    return text
