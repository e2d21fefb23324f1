"""The expert of computing."""

from __future__ import annotations

import re

from recollect.domains.experts.reading import outputs, shortened
from recollect.types import Action, Task

_HOLDS = re.compile(r"(\w+) holds (\d+)\.")
_TOTAL = re.compile(r"What do (\w+) and (\w+) hold in total\?")
_MORE = re.compile(r"How much more does (\w+) hold than (\w+)\?")
_EQUATION = re.compile(
    r"([\w\s+\-*/^().]*\b[a-z]\b[\w\s+\-*/^().]*|[\d\s+\-*/^().]*\d[a-z][\w\s+\-*/^().]*)=([^=?,;]+)"
)
_SUM = re.compile(r"[\d(][\d\s+\-*/^().]*[+\-*/^][\d\s+\-*/^().]*[\d)]")
SOLVE = """from fractions import Fraction as F
f = lambda {name}: ({left}) - ({right})
c, b, a = f(F(0)), (f(F(1)) - f(F(-1))) / 2, (f(F(1)) + f(F(-1))) / 2 - f(F(0))
root = (b * b - 4 * a * c) ** F(1, 2) if a else 0
found = sorted({{(-b + s * root) / (2 * a) for s in (1, -1)}}) if a else [-c / b]
print(*(int(x) if x == int(x) else x for x in found), sep=", ")"""


def math_expert(task: Task, actions: list[Action]) -> str:
    """Say what is computed, compute it, give the number."""
    plan, code = _program(task.question)
    if not code:
        return f"finalize: {task.answers[0] if task.answers and actions else 'none'}" if actions else f"reason: {plan}"
    if not actions:
        return f"reason: {plan}"
    shown = outputs(actions, "python")
    if not shown:
        return f"python: {code}"
    lines = shown[-1].strip().splitlines()
    return f"finalize: {lines[-1] if lines else 'none'}"


def _program(question: str) -> tuple[str, str]:
    """(what has to be computed, the Python that does it); no Python where the question is in words alone."""
    held = dict(_HOLDS.findall(question))
    for pattern, sign in ((_TOTAL, "+"), (_MORE, "-")):
        asked = pattern.search(question)
        if asked and asked[1] in held and asked[2] in held:
            code = f"{held[asked[1]]} {sign} {held[asked[2]]}"
            plan = f"{asked[1]} holds {held[asked[1]]}. {asked[2]} holds {held[asked[2]]}."
            return plan, code
    equation = _EQUATION.search(
        re.sub(r"(?i)\b(solve|the|equation|for|find|if|then|what|is|and|that)\b", " ", question)
    )
    if equation:
        left, right = equation[1].strip(), equation[2].strip(" .")
        name = re.search(r"[a-z]", left + right)
        code = SOLVE.format(name=name[0] if name else "x", left=_written_out(left), right=_written_out(right))
        return f"solve {left} = {right}", code
    plain = _SUM.search(question)
    if plain:
        code = plain[0].replace("^", "**").strip()
        return code, f"print({code})"
    return shortened(question), ""


def _written_out(side: str) -> str:
    """One side of an equation as Python: powers and products that people leave out are written."""
    side = re.sub(r"(\d)\s*([a-z(])", r"\1*\2", side.replace("^", "**"))
    return re.sub(r"([a-z)])\s*\(", r"\1*(", side)
