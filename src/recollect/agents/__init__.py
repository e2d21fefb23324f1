"""Agent loops: plain async functions of a task and a session."""

from recollect.agents.chat import chat
from recollect.agents.recurrent import recurrent

AGENTS = {"recurrent": recurrent, "chat": chat}
