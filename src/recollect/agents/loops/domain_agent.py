"""The agents of the domains: one action in a turn, until one of them finishes; then the outcome is checked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from recollect.agents.session import Session
from recollect.agents.tool_loop import opened, parser_for
from recollect.config import Config
from recollect.domains.domain import Domain
from recollect.domains.registry import DOMAINS
from recollect.types import Task


def agent_of(domain: Domain) -> Callable[[Task, Session, Config], Awaitable[str]]:
    """The loop of a domain."""

    async def agent(task: Task, session: Session, cfg: Config) -> str:
        await domain.prepare(task, session)
        answer = await _act(replace(task, question=domain.ask(task)), session, cfg, domain)
        session.trajectory.success = await domain.verify(task, session, answer)
        return answer

    agent.__name__ = agent.__qualname__ = domain.name
    return agent


async def _act(task: Task, session: Session, cfg: Config, domain: Domain) -> str:
    """Turns with actions; a turn without one is the answer, and a limit that ends the episode leaves none."""
    parse = parser_for(cfg, "line")
    chat = opened(task, session, cfg, domain.prompt)
    while (text := await chat.turn()) is not None:
        calls = parse(text, chat.schemas)
        if not calls:
            return chat.end("no_tool_call")
        if await chat.use(calls):
            return chat.answer
    return ""


DOMAIN_AGENTS = {name: agent_of(domain) for name, domain in DOMAINS.items()}


async def domain(task: Task, session: Session, cfg: Config) -> str:
    """The agent of the domain that the task's source names: tasks of several domains in one run."""
    return await DOMAIN_AGENTS[task.source](task, session, cfg)
