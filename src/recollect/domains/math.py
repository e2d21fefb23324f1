"""Mathematics with a computer at hand: reason, run Python or a shell in the sandbox, finalize."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from recollect.config import Config
from recollect.domains.computing import Program, program
from recollect.domains.domain import SYNTAX, Domain, finalize, reason
from recollect.domains.expert_texts import GIVE_UP, shortened
from recollect.domains.verify import equal
from recollect.rewards.domain_scoring import DomainScoring
from recollect.rewards.math_answers import math_reward_string_equal
from recollect.rewards.parts import JudgedTrajectory
from recollect.tasks.names import Split, names, values
from recollect.tasks.needle import holds
from recollect.tools.python import python_executor
from recollect.tools.tool_definition import Tool, renamed
from recollect.types import Action, Task

PROMPT = f"""Solve a problem of mathematics. {SYNTAX}
First reason about what has to be computed, then compute it with python, then finalize with the number or expression \
alone."""

python = renamed(python_executor, "python")


def tools(cfg: Config) -> list[str | Tool]:
    """What the agent may call."""
    return [reason, python, "bash", finalize]


# ---- the scripted expert ----


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


# ---- made-up tasks ----


PEOPLE = 3


def make_task(rng: random.Random, split: Split) -> Task:
    """Sums and differences of what people hold, among others that are not asked for."""
    people = rng.sample(names(split), PEOPLE)
    held = rng.sample([v for v in values(split) if v[0] != "0"], PEOPLE)
    a, b = rng.sample(range(PEOPLE), 2)
    facts = " ".join(holds(name, value) for name, value in zip(people, held, strict=True))
    if rng.random() < 0.5:
        asked, answer = f"What do {people[a]} and {people[b]} hold in total?", int(held[a]) + int(held[b])
    else:
        asked, answer = f"How much more does {people[a]} hold than {people[b]}?", int(held[a]) - int(held[b])
    return Task("", f"{facts} {asked}", None, (str(answer),))


_NUMBER = re.compile(r"\d")
COMPUTING = frozenset({"python", "python_executor", "code_interpreter", "bash", "calculator"})


def signs(reading: JudgedTrajectory, spoken: Sequence[str]) -> list[float]:
    """A number in the answer, and something computed."""
    return [float(bool(_NUMBER.search(reading.answer))), float(bool(_NUMBER.search(reading.read)))]


MATH = Domain(
    *("math", PROMPT, tools, equal, math_expert, make_task),
    mixed=True,
    scoring=DomainScoring(COMPUTING, signs, same=math_reward_string_equal),
)
