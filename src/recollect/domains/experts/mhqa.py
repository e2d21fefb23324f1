"""The expert of several look-ups."""

from __future__ import annotations

import re

from recollect.domains.experts.reading import (
    GIVE_UP,
    best,
    content,
    known_answer,
    outputs,
    sentences,
    shortened,
    supported,
)
from recollect.types import Action, Task

_CHAIN = re.compile(r"What does the one (\w+) trusts hold\?")
MOST_HOPS = 4


def mhqa_expert(task: Task, actions: list[Action]) -> str:
    """Decompose, then a search for each part, then the answer."""
    chain = _CHAIN.fullmatch(task.question.strip())
    found = outputs(actions, "search")
    if chain:
        return _chained(chain[1], len(actions), found)
    parts = hops(task.question)
    if not actions:
        return f"decompose: {'; '.join(parts)}"
    if len(found) < len(parts):
        return f"search: {parts[len(found)]}"
    if len(actions) == len(parts) + 1:
        return f"reason: {shortened(best(task.question, sentences(' '.join(found)))) or 'nothing was found'}"
    read = "\n".join(found)
    answer = known_answer(task, read)
    return f"finalize: {answer if answer is not None else _told(parts, sentences(read))}"


def _told(parts: list[str], lines: list[str]) -> str:
    """The sentence for each part of the question that there is one for; it is no answer if the first has none."""
    told = [supported(part, lines) for part in parts]
    return shortened(" ".join(dict.fromkeys(t for t in told if t))) if told[0] else GIVE_UP


def hops(question: str) -> list[str]:
    """The smaller questions of a question: what stands between "and", commas and marks."""
    parts = [p.strip() for p in re.split(r"[?;,]|\band\b", question) if content(p)]
    return parts[:MOST_HOPS] or [question.strip()]


def _chained(name: str, done: int, found: list[str]) -> str:
    """The made-up question: whom a name trusts, then what that one holds."""
    if done == 0:
        return f"decompose: {name} trusts, holds"
    if not found:
        return f"search: {name} trusts"
    link = re.search(rf"\b{name} trusts (\w+)\.", found[0])
    if link and len(found) == 1:
        return f"search: {link[1]} holds"
    fact = re.search(rf"\b{link[1]} holds (\w+)\.", found[-1]) if link else None
    return f"finalize: {fact[1] if fact else 'none'}"
