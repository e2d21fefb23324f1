"""The expert of computing."""

from __future__ import annotations

import re

from recollect.domains.experts.computing import Program, program
from recollect.domains.experts.texts import GIVE_UP, shortened
from recollect.types import Action, Task

_HOLDS = re.compile(r"(\w+) holds (\d+)\.")
_TOTAL = re.compile(r"What do (\w+) and (\w+) hold in total\?")
_WRONG = re.compile(r"Traceback|Error: |Stopped: |exit status|\(no output\)")
_MORE = re.compile(r"How much more does (\w+) hold than (\w+)\?")


def math_expert(task: Task, actions: list[Action]) -> str:
    """Say what is computed, compute it, give the number; without a program that is sure to be right, give up."""
    found = _made_up(task.question) or program(task.question)
    if not actions:
        return f"reason: {found[0] if found else shortened(task.question)}"
    if found is None:
        return f"finalize: {task.answers[0] if task.answers else GIVE_UP}"
    runs = [a for a in actions if a.tool == "python"]
    if not runs:
        return f"python: {found[1]}"
    went_wrong = runs[-1].outcome != "ok" or _WRONG.search(runs[-1].output)
    lines = [] if went_wrong else runs[-1].output.strip().splitlines()
    return f"finalize: {lines[-1] if lines else GIVE_UP}"


def _made_up(question: str) -> Program | None:
    """The program of a made-up task, which is in words."""
    held = dict(_HOLDS.findall(question))
    for pattern, sign in ((_TOTAL, "+"), (_MORE, "-")):
        asked = pattern.search(question)
        if asked and asked[1] in held and asked[2] in held:
            plan = f"{asked[1]} holds {held[asked[1]]}. {asked[2]} holds {held[asked[2]]}."
            return plan, f"{held[asked[1]]} {sign} {held[asked[2]]}"
    return None
