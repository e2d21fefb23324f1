"""The agents, one file each: plain async functions of a task, a session and the settings."""

# Each adds its loops to the registry, in the order in which messages and --help list them.
# isort: off
from recollect.agents.loops import recurrent
from recollect.agents.loops import chat
from recollect.agents.loops import hf
from recollect.agents.loops import react
from recollect.agents.loops import code
from recollect.agents.loops import search_r1
from recollect.agents.loops import domain_agent
from recollect.agents.loops import tool_memory
from recollect.agents.loops import baselines
# isort: on

__all__ = ["baselines", "chat", "code", "domain_agent", "hf", "react", "recurrent", "search_r1", "tool_memory"]
