"""Code as action: the one fenced python block of a turn is run, and its output is what the model reads next."""

from __future__ import annotations

from recollect.agents.session import Session
from recollect.agents.tool_loop import parser_for, start_dialogue, system_spec
from recollect.chat.text_calls import PYTHON_TOOLS
from recollect.config import Config
from recollect.registries import agent
from recollect.types import Task

PROMPT = """Solve the task by writing Python programs. To run one, write a single block like this and end your turn:
```python
print(2 + 2)
```
You are then given what it printed. Variables keep their values from one program to the next. When you know the answer,
reply with it and without a program."""


@agent(
    asks_first=True,
    limits_context=True,
    uses_tools=True,
    needs_tools=True,
    calls=PYTHON_TOOLS,
    runs_programs=True,
    prompts=system_spec(PROMPT),
)
async def code(task: Task, session: Session, cfg: Config) -> str:
    """Run programs until a turn has none; that turn is the answer."""
    parse = parser_for(cfg, "code")
    chat = start_dialogue(task, session, cfg, PROMPT)
    while (text := await chat.turn()) is not None:
        calls = parse(text, chat.schemas)
        if not calls:
            return chat.end("no_tool_call")
        if await chat.use(calls):
            break
    return chat.answer
