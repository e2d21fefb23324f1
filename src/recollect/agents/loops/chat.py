"""One question, one completion: the plain agent without memory or tools."""

from __future__ import annotations

from recollect.agents.first_prompt import first_messages
from recollect.agents.session import Session
from recollect.config import Config
from recollect.registries import agent
from recollect.types import Task


@agent(asks_first=True, question_alone=True, baseline=True)
async def chat(task: Task, session: Session, cfg: Config) -> str:
    """Ask the question, after the system prompt if there is one, and return what is said."""
    messages = session.fit(first_messages(task, cfg), cfg.data.max_prompt_length, cfg.data.truncation)
    return (await session.generate(messages)).text
