"""Agent loops: plain async functions of a task and a session."""

from recollect.agents.baselines import concat, rag
from recollect.agents.chat import chat
from recollect.agents.code import code
from recollect.agents.domain import DOMAIN_AGENTS, domain
from recollect.agents.hf import hf
from recollect.agents.react import react
from recollect.agents.recurrent import recurrent
from recollect.agents.search_r1 import search_r1
from recollect.agents.tool_memory import tool_memory

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
