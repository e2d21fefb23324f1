"""One question, one completion: the plain agent without memory or tools."""

from __future__ import annotations

from recollect.agents.first_prompt import first_messages
from recollect.agents.session import Session
from recollect.config import Config
from recollect.registries import PromptSpec, agent
from recollect.types import Task


def _given(cfg: Config) -> str:
    return cfg.agent.system_prompt or ""


OPENING = PromptSpec("system", _given, _given)


@agent(asks_first=True, question_alone=True, baseline=True, prompts=(OPENING,))
async def chat(task: Task, session: Session, cfg: Config) -> str:
    """Ask the question, after the system prompt if there is one, and return what is said."""
    limits = cfg.data.max_prompt_length, cfg.data.truncation
    render = lambda said: session.fit(first_messages(task, cfg, said), *limits)
    return (await session.turn(cfg, OPENING, {"question": task.question}, role="agent", render=render)).text
