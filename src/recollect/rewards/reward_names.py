"""``agent.reward_name``: one reward, or a weighted sum of several, each with options.

qa_f1_reward
[qa_f1_reward*0.8,format*0.2]
qa_f1_reward*0.8+format*0.2
[my_rewards.py:mine,length_penalty(limit=512)*0.1]
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any

from recollect.config import Config
from recollect.rewards.convention import refuse_unclear
from recollect.rewards.decorator import REWARDS, Level, Marks, marks_of
from recollect.rewards.options import check_options
from recollect.rewards.scoring import call, call_batch
from recollect.runtime.plugins import find
from recollect.types import BadInput, Reward, Score, Task, Trajectory

KEY = "agent.reward_name"
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_TERM = re.compile(
    rf"(?:(?P<before>{_NUMBER})\s*\*\s*)?(?P<name>[^*()\[\],]+?)\s*"
    rf"(?:\((?P<options>[^()]*)\))?\s*(?:\*\s*(?P<after>{_NUMBER}))?"
)
EVERY_QUESTION = "memory_qa"  # the reward of tasks with several questions
_LEVELS: tuple[Level, ...] = ("trajectory", "group", "batch")


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


def find_reward(text: str, cfg: Config | None = None) -> Reward:
    """The reward behind ``agent.reward_name``: the function itself, or a sum that is called like one.

    A function with a parameter ``config: Config`` is given the run's settings.
    """
    terms = parse(text)
    parts = [_function(term, cfg or Config()) for term in terms]
    if len(terms) == 1 and terms[0].weight == 1:
        return parts[0]
    labels = [t.name.rpartition(":")[2] for t in terms]
    labels = [label if labels.count(label) == 1 else str(i) + "/" + label for i, label in enumerate(labels)]
    return Weighted([(label, t.weight, part) for label, t, part in zip(labels, terms, parts, strict=True)])


def _function(term: Term, cfg: Config) -> Reward:
    function = find(term.name, REWARDS, KEY)
    refuse_unclear(function, f"{KEY}={term.name}")
    taken = signature(function).parameters
    settings = {"config": cfg} if "config" in taken and taken["config"].annotation in (Config, "Config") else {}
    if not term.options and not settings:
        return function
    for name, _ in term.options:
        if name not in taken or taken[name].default is taken[name].empty:
            known = [n for n, p in taken.items() if p.default is not p.empty]
            raise BadInput(f"{KEY}: {term.name} has no option {name}; it has {', '.join(known) or 'none'}")
    check_options(function, dict(term.options), f"{KEY}: {term.name}")
    bound = partial(function, **settings, **dict(term.options))
    bound.__reward__ = marks_of(function)  # type: ignore[attr-defined]
    return bound


def needs_answers(text: str) -> bool:
    """Whether a reward that comes with recollect needs an accepted answer in every data row."""
    named = [REWARDS.get(term.name) for term in parse(text)]
    return any(f is not None and marks_of(f).gold for f in named)


def scores_one_answer(text: str) -> bool:
    """Whether a reward compares one answer with the accepted ones, and none of its parts looks at every question."""
    return needs_answers(text) and EVERY_QUESTION not in [term.name for term in parse(text)]


class Weighted:
    """A sum of rewards. Each is a part of the score, without its weight; metrics of a part are named under it."""

    def __init__(self, parts: Sequence[tuple[str, float, Reward]]) -> None:
        self.parts = list(parts)
        level = max((marks_of(part).level for _, _, part in self.parts), key=_LEVELS.index)
        self.__reward__ = Marks(level, inline=True)

    async def __call__(self, task: Task, trajectory: Trajectory) -> Score:
        return self._sum(await asyncio.gather(*(call(p, task, trajectory, plain=True) for _, _, p in self.parts)))

    async def call_batch(self, tasks: Sequence[Task], trajectories: Sequence[Trajectory]) -> list[Score]:
        """The sums of many trajectories, where a part looks at all of them."""
        made = await asyncio.gather(*(call_batch(p, tasks, trajectories) for _, _, p in self.parts))
        return [self._sum(scores) for scores in zip(*made, strict=True)]

    def _sum(self, scores: Sequence[Score]) -> Score:
        parts: dict[str, float] = {}
        for (label, _, _), score in zip(self.parts, scores, strict=True):
            parts |= {label: score.total, **{f"{label}/{k}": v for k, v in score.parts.items()}}
        return Score(
            self._add(s.total for s in scores),
            parts,
            {role: self._add(s.roles.get(role, s.total) for s in scores) for s in scores for role in s.roles},
            tuple(self._add(_of_question(s, i) for s in scores) for i in range(max(len(s.questions) for s in scores))),
        )

    def _add(self, values: Iterable[float]) -> float:
        return math.fsum(weight * value for (_, weight, _), value in zip(self.parts, values, strict=True))


def _of_question(score: Score, i: int) -> float:
    return score.questions[i] if i < len(score.questions) else score.total
