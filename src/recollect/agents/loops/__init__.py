"""The agents, one file each: plain async functions of a task, a session and the settings.

Each file adds its loops to the registry; messages name them in this order.
"""

from recollect.agents.loops import recurrent, chat, hf, react, code, search_r1, search_once  # isort: skip
from recollect.agents.loops import domain_agent, tool_memory, conversation_qa, baselines, gui  # isort: skip

__all__ = [
    "baselines",
    "chat",
    "code",
    "conversation_qa",
    "domain_agent",
    "gui",
    "hf",
    "react",
    "recurrent",
    "search_once",
    "search_r1",
    "tool_memory",
]
