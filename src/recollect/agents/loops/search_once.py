"""One fixed search with the question, and an answer from what it finds: the baseline of an agent that searches."""

from __future__ import annotations

from recollect.agents.memory.recurrent_prompts import section_prompt
from recollect.agents.session import Session
from recollect.config import Config
from recollect.registries import agent
from recollect.types import Task, ToolCall

TOOLS = ("search", "google_search")


@agent(roles=("qa",), asks_first=True, uses_tools=True, needs_tools=True, calls=TOOLS)
async def search_once(task: Task, session: Session, cfg: Config) -> str:
    """The passages that a search with the question finds, the question, and one turn to answer."""
    assert session.tools is not None
    tool = next(name for name in TOOLS if name in cfg.agent.tools)
    (found,) = await session.tools.call_all([ToolCall(tool, {"query": task.question})])
    session.note(found.text)
    prompt = section_prompt(cfg.recurrent.memory.config.style, task.question, found.text)
    return (await session.generate(prompt, role="qa")).text
