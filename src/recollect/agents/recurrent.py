"""Recurrent memory: read a document of any length section by section, keep a short memory, answer from it."""

from __future__ import annotations

from recollect.agents.prompts import answer_prompt, update_prompt
from recollect.config import Config
from recollect.data.prompts import cut_text
from recollect.data.questions import given_chunks, questions_of
from recollect.session import Session
from recollect.types import Task


async def recurrent(task: Task, session: Session, cfg: Config) -> str:
    """One memory turn per section, then one answer turn that sees the question and the memory only."""
    if len(questions := questions_of(task)) > 1:
        raise ValueError(f"recurrent answers one question; of {len(questions)}, take tool_memory, concat or rag")
    limits, chunks = cfg.recurrent.memory.config, given_chunks(task.context)
    context = task.context if chunks is None else "\n".join(chunks)
    reader, writer = session.binding("memory").renderer, session.binding("qa").renderer
    question = cut_text(task.question, writer, limits.max_prompt_length, cfg.data.truncation)
    shown = question if limits.query_aware else None
    memory = ""
    for chunk in session.sections(context, limits.chunk_size, limits.split, limits.max_chunks):
        prompt = update_prompt(limits.style, limits.layout, shown, chunk.strip(), memory)
        done = await session.generate(prompt, role="memory", max_tokens=limits.max_memorization_length)
        memory = cut_text(done.text.strip(), reader, limits.max_memorization_length, "right")
        session.note(memory)
    prompt = answer_prompt(limits.style, question, memory)
    return (await session.generate(prompt, role="qa", max_tokens=limits.max_final_response_length)).text
