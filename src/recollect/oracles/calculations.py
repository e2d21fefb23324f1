"""Oracles for worked solutions: GSM8K's annotations (`<<48/2=24>>`) become calls of the calculator."""

from __future__ import annotations

import re
from dataclasses import dataclass

from recollect.oracles.moment import UNKNOWN, Moment, boxed
from recollect.types import ToolCall

TOOL = "calculator"
ALONE = ("llama",)  # formats in which a call stands alone
_ANNOTATION = re.compile(r"<<([^<>=]*)=([^<>]*)>>")


@dataclass(frozen=True)
class Calculation:
    """What is said before a call, and what is calculated."""

    lead: str
    expression: str


def steps_of(solution: str) -> tuple[list[Calculation], str]:
    """The calculations of a solution in order, and the text after the last of them."""
    steps, end = [], 0
    for found in _ANNOTATION.finditer(solution):
        steps.append(Calculation(solution[end : found.start()].strip(), found[1].strip()))
        end = found.end()
    return steps, solution[end:].strip()


def without_annotations(solution: str) -> str:
    """A solution as one would write it without a calculator."""
    return _ANNOTATION.sub("", solution).strip()


def calculate_step(moment: Moment) -> str:
    """The next part of the solution up to a calculation, and its call; after the last one the answer."""
    solution, done = _solution(moment), len(moment.trajectory.actions)
    steps, rest = steps_of(solution)
    if not solution or any(action.outcome != "ok" for action in moment.trajectory.actions):
        return boxed(UNKNOWN)
    if done < len(steps):
        step = steps[done]
        call = moment.calls([ToolCall(TOOL, {"expression": step.expression})], moment.renderer.parser)
        return call if moment.cfg.agent.tool_parser in ALONE else f"{step.lead}\n{call}".strip()
    return f"{rest}\n{boxed(moment.asked.answer)}".strip()


def worked_answer(moment: Moment) -> str:
    """The whole solution without a calculator, and the answer; where there is none, the answer alone."""
    return f"{without_annotations(_solution(moment))}\n{boxed(moment.asked.answer)}".strip()


def _solution(moment: Moment) -> str:
    return str(moment.task.fields.get("solution") or "")
