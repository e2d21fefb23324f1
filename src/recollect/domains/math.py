"""Mathematics with a computer at hand: reason, run Python or a shell in the sandbox, finalize."""

from __future__ import annotations

from recollect.config import Config
from recollect.domains.domain import SYNTAX, Domain, finalize, reason
from recollect.domains.experts import math_expert
from recollect.domains.verify import equal
from recollect.tools.python import python_executor
from recollect.tools.tool import Tool, renamed

PROMPT = f"""Solve a problem of mathematics. {SYNTAX}
First reason about what has to be computed, then compute it with python, then finalize with the number or expression \
alone."""

python = renamed(python_executor, "python")


def tools(cfg: Config) -> list[str | Tool]:
    """What the agent may call."""
    return [reason, python, "bash", finalize]


MATH = Domain("math", PROMPT, tools, equal, math_expert)
