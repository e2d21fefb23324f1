"""The agents of the domains: one action in a turn, until one of them finishes; then the outcome is checked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from recollect.agents.session import Session
from recollect.agents.tool_loop import parser_for, start_dialogue, system_spec
from recollect.config import Config
from recollect.domains.domain import Domain
from recollect.registries import DOMAINS, agent
from recollect.types import Task


def loop_of(domain: Domain) -> Callable[[Task, Session, Config], Awaitable[str]]:
    """The loop of a domain."""

    async def loop(task: Task, session: Session, cfg: Config) -> str:
        await domain.prepare(task, session)
        answer = await _act(replace(task, question=domain.ask(task)), session, cfg, domain)
        session.trajectory.success = await domain.verify(task, session, answer)
        return answer

    loop.__name__ = loop.__qualname__ = domain.name
    return loop


async def _act(task: Task, session: Session, cfg: Config, domain: Domain) -> str:
    """Turns with actions; a turn without one is the answer, and a limit that ends the episode leaves none."""
    parse = parser_for(cfg, "line")
    chat = start_dialogue(task, session, cfg, domain.prompt)
    while (text := await chat.turn()) is not None:
        calls = parse(text, chat.schemas)
        if not calls:
            return chat.end("no_tool_call")
        if await chat.use(calls):
            return chat.answer
    return ""


LOOPS = {
    domain.name: agent(
        roles=domain.roles,
        asks_first=True,
        limits_context=True,
        uses_tools=True,
        runs_programs=domain.runs_programs,
        prompts=system_spec(domain.prompt),
    )(loop_of(domain))
    for domain in DOMAINS.values()
}


@agent(asks_first=True, limits_context=True, uses_tools=True, by_source=True)
async def domain(task: Task, session: Session, cfg: Config) -> str:
    """The agent of the domain that the task's source names: tasks of several domains in one run."""
    return await LOOPS[task.source](task, session, cfg)
