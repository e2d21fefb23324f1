"""Agent loops: plain async functions of a task and a session."""

from collections.abc import Callable
from inspect import iscoroutinefunction, unwrap
from typing import Any

from recollect.agents.loops.baselines import concat, rag
from recollect.agents.loops.chat import chat
from recollect.agents.loops.code import code
from recollect.agents.loops.domain_agent import DOMAIN_AGENTS, domain
from recollect.agents.loops.hf import hf
from recollect.agents.loops.react import react
from recollect.agents.loops.recurrent import recurrent
from recollect.agents.loops.search_r1 import search_r1
from recollect.agents.loops.tool_memory import tool_memory
from recollect.runtime.plugins import find
from recollect.types import BadInput

AGENTS = {
    "recurrent": recurrent,
    "chat": chat,
    "hf": hf,
    "react": react,
    "code": code,
    "search_r1": search_r1,
    **DOMAIN_AGENTS,
    "domain": domain,
    "tool_memory": tool_memory,
    "concat": concat,
    "rag": rag,
}


def find_agent(name: str) -> Callable[..., Any]:
    """The agent behind ``agent.agent_type``; one that cannot be awaited is refused."""
    found = find(name, AGENTS, "agent.agent_type")
    if not any(iscoroutinefunction(f) for f in (found, unwrap(found), getattr(found, "__call__", None))):  # noqa: B004
        own = name.rpartition(":")[2]
        raise BadInput(f"agent.agent_type={name} is not async: write it as `async def {own}(task, session, cfg)`")
    return found
