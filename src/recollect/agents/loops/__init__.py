"""The agents, one file each: plain async functions of a task, a session and the settings."""

from recollect.agents.loops import (  # each adds its loops to the registry
    baselines,
    chat,
    code,
    domain_agent,
    hf,
    react,
    recurrent,
    search_r1,
    tool_memory,
)

__all__ = ["baselines", "chat", "code", "domain_agent", "hf", "react", "recurrent", "search_r1", "tool_memory"]
