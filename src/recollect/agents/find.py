"""The agent that a setting names."""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction, unwrap
from typing import Any

from recollect.registries import AGENTS
from recollect.runtime.plugins import find
from recollect.types import BadInput


def find_agent(name: str) -> Callable[..., Any]:
    """The agent behind ``agent.agent_type``; one that cannot be awaited is refused."""
    found = find(name, {known: spec.loop for known, spec in AGENTS.items()}, "agent.agent_type")
    if not any(iscoroutinefunction(f) for f in (found, unwrap(found), getattr(found, "__call__", None))):  # noqa: B004
        own = name.rpartition(":")[2]
        raise BadInput(f"agent.agent_type={name} is not async: write it as `async def {own}(task, session, cfg)`")
    return found
