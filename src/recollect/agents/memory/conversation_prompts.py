"""The wording of the prompts of ``conversation_qa``, or a file with others."""

from __future__ import annotations

import string
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from recollect.agents.memory.recurrent_prompts import EMPTY_MEMORY
from recollect.config import Config
from recollect.files.reading import MB, read_json
from recollect.types import BadInput

FIELDS = {"read": ("session", "memory", "budget"), "answer": ("memory", "question")}  # what each has to hold
CONVERSATION_PROMPTS = {
    "instruct": {
        "read": (
            "You keep a memory of a conversation that goes on for months. Questions about it come later, when you see "
            "the memory alone.\n\n<memory>\n{memory}\n</memory>\n\nThe next session:\n\n"
            "<session>\n{session}\n</session>\n\n"
            "Write the memory anew: keep what it says, and add what this session tells about each speaker, with "
            "dates. It may have {budget} tokens. Reply with the new memory and nothing else."
        ),
        "answer": (
            "This is what you remember of a conversation:\n\n<memory>\n{memory}\n</memory>\n\n"
            "Question: {question}\n\n"
            "Answer with a short phrase, in words of the memory where you can, and with dates such as 7 May 2023. "
            'If the memory does not say it, answer "Not mentioned".'
        ),
    },
    "plain": {
        "read": "Section: {session}\nMemory: {memory}\n",
        "answer": "Question: {question}\nMemory: {memory}\nAnswer:",
    },
}


def prompts_of(cfg: Config) -> Mapping[str, str]:
    """The templates: those of agent.prompts, else recollect's own in the style of memory.style."""
    own = CONVERSATION_PROMPTS[cfg.memory.style]
    return own if cfg.agent.prompts is None else {**own, **read_prompts(cfg.agent.prompts)}


@cache
def read_prompts(file: str) -> Mapping[str, str]:
    """The templates of a file; one that lacks a place for what it has to show is refused."""
    path = Path(file).expanduser()
    given = read_json(path, 16 * MB, "file of prompts")
    found = given.get("prompts") if isinstance(given, Mapping) else None
    if not isinstance(found, Mapping) or not all(isinstance(text, str) for text in found.values()):
        raise BadInput(f"agent.prompts={file}: expected an object `prompts` with texts under {', '.join(FIELDS)}")
    for name, text in found.items():
        if name not in FIELDS:
            raise BadInput(f"agent.prompts={file}: the prompt {name} is unknown; known: {', '.join(FIELDS)}")
        _check(name, text, file)
    return dict(found)


def _check(name: str, text: str, file: str) -> None:
    try:
        held = [field for _, field, _, _ in string.Formatter().parse(text) if field is not None]
    except ValueError as error:
        raise BadInput(
            f"agent.prompts={file}: {name} is no template ({error}); write braces of its own twice"
        ) from None
    needed = [field for field in FIELDS[name] if field != "budget"]
    if missing := [field for field in needed if field not in held]:
        raise BadInput(f"agent.prompts={file}: {name} has no {{{missing[0]}}}")
    if other := [field for field in held if field not in FIELDS[name]]:
        raise BadInput(f"agent.prompts={file}: {name} holds {{{other[0]}}}; it may hold {', '.join(FIELDS[name])}")


def read_session_prompt(prompts: Mapping[str, str], session: str, memory: str, budget: int) -> str:
    """The prompt of a turn that reads a session."""
    return prompts["read"].format(session=session, memory=memory or EMPTY_MEMORY, budget=budget)


def recall_prompt(prompts: Mapping[str, str], question: str, memory: str) -> str:
    """The prompt of a turn that answers from what is remembered."""
    return prompts["answer"].format(question=question, memory=memory or EMPTY_MEMORY)
