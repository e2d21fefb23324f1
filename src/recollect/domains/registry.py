"""The domains by name."""

from __future__ import annotations

from collections.abc import Callable

from recollect.config import Config
from recollect.domains.math import MATH
from recollect.domains.mhqa import MHQA
from recollect.domains.swe import SWE
from recollect.domains.tau import TAU
from recollect.domains.video import VIDEO
from recollect.registries import AGENTS, DOMAINS
from recollect.tools.tool_definition import Tool
from recollect.types import BadInput, Task, Trajectory

for _domain in (MHQA, VIDEO, MATH, SWE, TAU):
    DOMAINS[_domain.name] = _domain


def tools_of(cfg: Config, source: str = "") -> list[str | Tool]:
    """The tools of a run: those that it names, or those of its domain, which the agent `domain` takes from the task."""
    if cfg.agent.tools:
        return list(cfg.agent.tools)
    agent = cfg.agent.agent_type
    by_source = AGENTS.knows(agent, "by_source")
    domain = DOMAINS.get(source if by_source else agent)
    if by_source and source and domain is None:
        raise BadInput(f"agent.agent_type={agent}: a task of the source {source}; known are {', '.join(DOMAINS)}")
    return domain.tools(cfg) if domain else []


def expert_of(name: str) -> Callable[[Task, Trajectory], str]:
    """What the scripted expert of a domain does next in an attempt."""
    domain = DOMAINS[name]
    return lambda task, trajectory: domain.expert(task, trajectory.actions)
