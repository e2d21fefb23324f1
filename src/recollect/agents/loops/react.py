"""ReAct: the model thinks, names an action and its input, and reads the observation."""

from __future__ import annotations

from recollect.agents.session import Session
from recollect.agents.tool_loop import parser_for, start_dialogue, system_spec
from recollect.chat.text_calls import react_answer
from recollect.config import Config
from recollect.registries import agent
from recollect.types import Task

PROMPT = """Solve the task step by step. You can use these tools:
{tools}

In each step write:
Thought: what you need to find out next
Action: the name of one tool
Action Input: a JSON object with its arguments

You are then given the Observation. When you know the answer, write:
Thought: why you are done
Final Answer: the answer"""


@agent(asks_first=True, limits_context=True, uses_tools=True, needs_tools=True, prompts=system_spec(PROMPT))
async def react(task: Task, session: Session, cfg: Config) -> str:
    """Thought, action, observation, until there is a final answer or a turn without an action."""
    parse = parser_for(cfg, "react")
    chat = start_dialogue(task, session, cfg, PROMPT)
    while (text := await chat.turn(stop=["Observation:"])) is not None:
        answer = react_answer(text)
        if answer is not None:
            return chat.end("answered", answer)
        calls = parse(text, chat.schemas)
        if not calls:
            return chat.end("no_tool_call")
        if await chat.use(calls, "Observation: {}", inline=" {}\n"):
            break
    return chat.answer
