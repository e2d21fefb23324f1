"""Parse ``agent.reward_name``: one reward, or a weighted sum of several, each with options.

qa_f1_reward
[qa_f1_reward*0.8,format*0.2]
qa_f1_reward*0.8+format*0.2
[my_rewards.py:mine,length_penalty(limit=512)*0.1]
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from recollect.registries import REWARDS
from recollect.types import BadInput

KEY = "agent.reward_name"
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_TERM = re.compile(
    rf"(?:(?P<before>{_NUMBER})\s*\*\s*)?(?P<name>[^*()\[\],]+?)\s*"
    rf"(?:\((?P<options>[^()]*)\))?\s*(?:\*\s*(?P<after>{_NUMBER}))?"
)
EVERY_QUESTION = "memory_qa"  # the reward of tasks with several questions


@dataclass(frozen=True)
class Term:
    """One reward of a sum."""

    name: str
    weight: float = 1.0
    options: tuple[tuple[str, Any], ...] = ()


def parse(text: str) -> list[Term]:
    """The rewards that a text names, with their weights and options."""
    inside = text.strip()
    if inside.startswith("[") and inside.endswith("]"):
        inside = inside[1:-1]
    terms = [_term(part, text) for part in _split(inside)]
    names = [(t.name, t.options) for t in terms]
    for name, options in names:
        if names.count((name, options)) > 1:
            raise BadInput(f"{KEY}={text} names {name} twice; add its weights up")
    return terms


def _split(text: str) -> list[str]:
    """At the commas and plus signs that are not inside parentheses, nor the sign of a number."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        signs = c == "+" and re.search(r"(\*\s*|\d[eE])$", text[start:i])
        if depth == 0 and (c == "," or (c == "+" and not signs)):
            parts.append(text[start:i])
            start = i + 1
    return [*parts, text[start:]]


def _term(part: str, text: str) -> Term:
    found = _TERM.fullmatch(part.strip())
    if found is None or (found["before"] and found["after"]):
        said = f"'{part.strip()}' in {text}" if part.strip() != text.strip() else f"'{text}'"
        raise BadInput(f"{KEY}: {said} is not name, name*weight or name(option=value)*weight")
    weight = float(found["before"] or found["after"] or 1)
    if not math.isfinite(weight):
        raise BadInput(f"{KEY}: the weight of {found['name']} is {weight}")
    options = [_option(o, text) for o in (found["options"] or "").split(",") if o.strip()]
    return Term(found["name"].strip(" '\""), weight, tuple(options))


def _option(text: str, whole: str) -> tuple[str, Any]:
    name, equals, value = (x.strip() for x in text.partition("="))
    if not equals or not name.isidentifier():
        raise BadInput(f"{KEY}={whole}: '{text.strip()}' is not option=value")
    try:
        return name, json.loads(value.lower() if value.lower() in ("true", "false") else value)
    except json.JSONDecodeError:
        return name, value.strip("'\"")


def needs_answers(text: str) -> bool:
    """Whether a reward that comes with recollect needs an accepted answer in every data row."""
    named = [REWARDS.get(term.name) for term in parse(text)]
    return any(getattr(getattr(f, "__reward__", None), "gold", False) for f in named)


def scores_one_answer(text: str) -> bool:
    """Whether a reward compares one answer with the accepted ones, and none of its parts looks at every question."""
    return needs_answers(text) and EVERY_QUESTION not in [term.name for term in parse(text)]
