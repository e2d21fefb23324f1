"""Recurrent memory: read a document of any length section by section, keep a short memory, answer from it."""

from __future__ import annotations

from collections.abc import Iterator

from recollect.agents.first_prompt import cut_text
from recollect.agents.memory import recurrent_limits
from recollect.agents.memory.recurrent_prompts import ANSWER, EMPTY_MEMORY, READ
from recollect.agents.session import Session
from recollect.config import Config, MemoryLimits
from recollect.data.documents import centre_cut
from recollect.data.questions import given_chunks, questions_of
from recollect.data.sections import Sections
from recollect.registries import agent
from recollect.types import Task


def sections_of(task: Task, session: Session, limits: MemoryLimits) -> Iterator[str]:
    """The document as it is read: its own sections, long ones in parts, or sections of so many tokens."""
    chunks = given_chunks(task.context)
    if chunks is not None and isinstance(task.context, Sections):
        parts = (part for text in chunks for part in session.parts(text, limits.chunk_size, limits.split))
        return centre_cut(parts, limits.max_chunks)
    context = task.context if chunks is None else "\n".join(chunks)
    return session.sections(context, limits.chunk_size, limits.split, limits.max_chunks)


@agent(
    roles=("memory", "qa"),
    reads_document=True,
    notes_sections=True,
    baseline=True,
    section_limit=recurrent_limits.section_limit,
    longest_completion=recurrent_limits.longest_completion,
    tokens=recurrent_limits.trajectory_tokens,
    window_problem=recurrent_limits.window_problem,
    prompts=(READ, ANSWER),
)
async def recurrent(task: Task, session: Session, cfg: Config) -> str:
    """One memory turn per section, then one answer turn that sees the question and the memory only."""
    if len(questions := questions_of(task)) > 1:
        raise ValueError(f"recurrent answers one question; of {len(questions)}, take tool_memory, concat or rag")
    limits = cfg.recurrent.memory.config
    reader, writer = session.binding("memory").renderer, session.binding("qa").renderer
    question = cut_text(task.question, writer, limits.max_prompt_length, cfg.data.truncation)
    asked = {"question": question} if limits.query_aware else {}
    memory = ""
    for chunk in sections_of(task, session, limits):
        shown = {**asked, "section": chunk.strip(), "memory": memory or EMPTY_MEMORY}
        done = await session.turn(cfg, READ, shown, role="memory", max_tokens=limits.max_memorization_length)
        memory = cut_text(done.text.strip(), reader, limits.max_memorization_length, "right")
        session.note(memory)
    shown = {"question": question, "memory": memory or EMPTY_MEMORY}
    return (await session.turn(cfg, ANSWER, shown, role="qa", max_tokens=limits.max_final_response_length)).text
