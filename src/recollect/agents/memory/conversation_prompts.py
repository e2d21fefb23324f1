"""The wording of the prompts of ``conversation_qa``."""

from __future__ import annotations

from recollect.agents.memory.recurrent_prompts import EMPTY_MEMORY
from recollect.agents.wording import worded
from recollect.config import Config
from recollect.config.prompt_file import wording
from recollect.registries import PromptSpec
from recollect.types import Message

_KEEP = (
    "You keep a memory of a conversation that goes on for months. Questions about it come later, when you see "
    "the memory alone."
)
_WRITE = (
    "Write the memory anew: keep what it says, and add what this session tells about each speaker, with dates. {}"
    "Reply with the new memory and nothing else."
)
_SAY = (
    "Answer with a short phrase, in words of the memory where you can, and with dates such as 7 May 2023. "
    'If the memory does not say it, answer "Not mentioned".'
)
_ROOM = "It may have {budget} tokens. "
_MEMORY, _SESSION = "<memory>\n{memory}\n</memory>\n\n", "<session>\n{session}\n</session>"

CONVERSATION_PROMPTS = {
    "instruct": {
        "read": f"{_KEEP}\n\n{_MEMORY}The next session:\n\n{_SESSION}\n\n{_WRITE.format(_ROOM)}",
        "answer": f"This is what you remember of a conversation:\n\n{_MEMORY}Question: {{question}}\n\n{_SAY}",
    },
    "plain": {
        "read": "Section: {session}\nMemory: {memory}\n",
        "answer": "Question: {question}\nMemory: {memory}\nAnswer:",
    },
}
FRAMES = {
    "instruct": {
        "read": f"{_MEMORY}{_SESSION}\n\nThe new memory may have {{budget}} tokens.",
        "answer": f"{_MEMORY}Question: {{question}}",
    },
    "plain": CONVERSATION_PROMPTS["plain"],
}
INSTRUCTIONS = {
    "instruct": {
        "read": f"{_KEEP}\n\n{_WRITE.format('')}",
        "answer": f"Answer from your memory of a conversation. {_SAY}",
    },
    "plain": {"read": "", "answer": ""},
}


def _prompt(name: str, inputs: tuple[str, ...], also: tuple[str, ...] = ()) -> PromptSpec:
    own, told, frame = (
        lambda cfg, texts=texts: texts[cfg.memory.style][name] for texts in (CONVERSATION_PROMPTS, INSTRUCTIONS, FRAMES)
    )
    return PromptSpec(name, own, told, frame, lambda cfg: inputs, also)


READ_SESSION = _prompt("read", ("session", "memory"), ("budget",))
RECALL = _prompt("answer", ("memory", "question"))


def read_session_inputs(session: str, memory: str, budget: int) -> dict[str, str]:
    """What a turn that reads a session is shown."""
    return {"session": session, "memory": memory or EMPTY_MEMORY, "budget": str(budget)}


def recall_inputs(question: str, memory: str) -> dict[str, str]:
    """What a turn that answers from what is remembered is shown."""
    return {"question": question, "memory": memory or EMPTY_MEMORY}


def read_session_prompt(cfg: Config, session: str, memory: str, budget: int) -> list[Message]:
    """The prompt of a turn that reads a session."""
    return worded(wording(cfg, READ_SESSION), read_session_inputs(session, memory, budget))


def recall_prompt(cfg: Config, question: str, memory: str) -> list[Message]:
    """The prompt of a turn that answers from what is remembered."""
    return worded(wording(cfg, RECALL), recall_inputs(question, memory))
