"""The domains by name."""

from __future__ import annotations

from collections.abc import Callable

from recollect.config import Config
from recollect.domains.base import Domain
from recollect.domains.math import MATH
from recollect.domains.mhqa import MHQA
from recollect.domains.swe import SWE
from recollect.domains.tau import TAU
from recollect.domains.video import VIDEO
from recollect.tools.base import Tool
from recollect.types import Task, Trajectory

DOMAINS: dict[str, Domain] = {d.name: d for d in (MHQA, VIDEO, MATH, SWE, TAU)}


def tools_of(cfg: Config) -> list[str | Tool]:
    """The tools of a run: those that it names, or those of its domain."""
    if cfg.agent.tools:
        return list(cfg.agent.tools)
    domain = DOMAINS.get(cfg.agent.agent_type)
    return domain.tools(cfg) if domain else []


def expert_of(name: str) -> Callable[[Task, Trajectory], str]:
    """What the scripted expert of a domain does next in an attempt."""
    domain = DOMAINS[name]
    return lambda task, trajectory: domain.expert(task, trajectory.actions)
