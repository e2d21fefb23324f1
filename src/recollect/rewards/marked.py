r"""Where an answer is marked in a text: ``\boxed{…}``, ``<answer>…</answer>``, ``Final Answer: …`` and ``#### …``."""

from __future__ import annotations

import re

_TAG = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL | re.IGNORECASE)
_LINE = re.compile(r"^[ \t*]*final answer[ \t*]*:[ \t*]*([^\n]*)", re.IGNORECASE | re.MULTILINE)
_HASHES = re.compile(r"^[ \t]*####[ \t]*([^\n]*)", re.MULTILINE)
NESTED = 3  # marks around marks that are taken off
ECHO_WORDS = 4  # a question of fewer words may be a part of a right answer


def boxes(text: str) -> list[tuple[int, int, int]]:
    r"""(start, start of content, end of content) of every \boxed{…} whose braces close, in order."""
    opened = {m.end(): m.start() for m in re.finditer(r"\\boxed\s*\{", text)}
    found: list[tuple[int, int, int]] = []
    stack: list[int] = []
    for brace in re.finditer(r"[{}]", text) if opened else ():
        if brace.group() == "{":
            stack.append(brace.end())
        elif stack:
            start = stack.pop()
            if start in opened:
                found.append((opened[start], start, brace.start()))
    return sorted(found)


def last_boxed(text: str) -> str | None:
    r"""What stands in the last \boxed{…} whose braces close, or None."""
    found = boxes(text)
    return text[found[-1][1] : found[-1][2]].strip() if found else None


def marked(text: str) -> list[str]:
    """Every marked answer of a text, in order; a mark inside another is not counted again."""
    places = [(m.start(), m.end(), *m.span(1)) for p in (_TAG, _LINE, _HASHES) for m in p.finditer(text)]
    places += [(start, b + 1, a, b) for start, a, b in boxes(text)]
    found, end = [], 0
    for start, stop, a, b in sorted(places):
        if start >= end:
            found.append(text[a:b].strip())
            end = stop
    return found


def given_answer(text: str) -> str:
    """The answer that a text gives: what it marks last, taken out of its marks, or else all of it."""
    for _ in range(NESTED):
        found = marked(text)
        if not found:
            break
        text = found[-1]
    return text


def without_question(text: str, question: str) -> str:
    """A text without verbatim copies of the question, whose own words and numbers earn nothing."""
    words = question.split()
    if len(words) < ECHO_WORDS:
        return text
    return re.sub(r"\s+".join(map(re.escape, words)), " ", text, flags=re.IGNORECASE)
