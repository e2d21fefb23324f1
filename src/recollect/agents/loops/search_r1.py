"""Search in the middle of a thought: <search> tags are answered inside the model's own turn, <answer> tags end it."""

from __future__ import annotations

from recollect.agents.session import Session
from recollect.agents.tool_loop import parser_for, start_dialogue, system_spec
from recollect.chat.text_calls import SEARCH_TOOLS, search_r1_answer
from recollect.config import Config
from recollect.registries import agent
from recollect.types import Task

PROMPT = """Answer the question. Reason inside <think> and </think> whenever you learn something new. When you lack \
knowledge, write <search> a query </search> and you are given what was found between <information> and </information>. \
Search as often as you need. When you know the answer, write it between <answer> and </answer> and nothing else."""


@agent(
    asks_first=True,
    limits_context=True,
    uses_tools=True,
    needs_tools=True,
    calls=SEARCH_TOOLS,
    prompts=system_spec(PROMPT),
)
async def search_r1(task: Task, session: Session, cfg: Config) -> str:
    """Search and reason in one growing turn, until it holds an answer or ends without a search."""
    parse = parser_for(cfg, "search_r1")
    chat = start_dialogue(task, session, cfg, PROMPT)
    while (text := await chat.turn(stop=["</search>", "</answer>"])) is not None:
        answer = search_r1_answer(text)
        if answer is not None:
            return chat.end("answered", answer)
        calls = parse(text, chat.schemas)
        if not calls:
            return chat.end("no_tool_call")
        if await chat.use(calls, "<information>{}</information>", inline="\n\n<information>{}</information>\n\n"):
            break
    return chat.answer
