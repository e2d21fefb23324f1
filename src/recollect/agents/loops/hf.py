"""Native tool calling: the model's chat template decides how tools are shown and called."""

from __future__ import annotations

from recollect.agents.session import Session
from recollect.agents.tool_loop import parser_for, start_dialogue, system_spec
from recollect.chat.templates import LISTING, LISTINGS
from recollect.config import Config
from recollect.registries import agent
from recollect.types import Task


@agent(asks_first=True, limits_context=True, uses_tools=True, native_calls=True, prompts=system_spec(""))
async def hf(task: Task, session: Session, cfg: Config) -> str:
    """Call tools until a turn has no call; that turn is the answer, unless a tool ended the episode."""
    bound = session.binding("agent")
    syntax = cfg.agent.tool_parser or bound.renderer.parser
    parse = parser_for(cfg, syntax)
    listed = session.tools is not None and not bound.shows_tools  # a template without tools: list them ourselves
    chat = start_dialogue(task, session, cfg, LISTINGS.get(syntax, LISTING) if listed else None, native=True)
    while (text := await chat.turn()) is not None:
        calls = parse(text, chat.schemas)
        if not calls:
            return chat.end("no_tool_call")
        if await chat.use(calls):
            break
    return chat.answer
