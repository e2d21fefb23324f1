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
SOLVE = """from sympy import Eq, Symbol, solve
from sympy.parsing.sympy_parser import convert_xor, implicit_multiplication_application, parse_expr, \
standard_transformations
ways = (*standard_transformations, implicit_multiplication_application, convert_xor)
left, right = (parse_expr(side, transformations=ways) for side in ({left!r}, {right!r}))
print(*solve(Eq(left, right)), sep=", ")"""


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
        return f"solve {left} = {right}", SOLVE.format(left=left, right=right)
    plain = _SUM.search(question)
    if plain:
        code = plain[0].replace("^", "**").strip()
        return code, f"print({code})"
    return shortened(question), ""
