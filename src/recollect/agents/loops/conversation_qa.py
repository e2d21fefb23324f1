"""Memory of months of conversation: sessions are read once, in order, and many questions are answered from it.

No question is seen while reading. What is kept has at most ``memory.budget`` tokens; of it, a prompt shows what is
found for its question.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from recollect.agents.first_prompt import cut_text
from recollect.agents.loops.tool_memory import tool_memory
from recollect.agents.memory import conversation_limits
from recollect.agents.memory.conversation_kept import Kept, OneText, Rules, fitting, kept_units
from recollect.agents.memory.conversation_prompts import (
    READ_SESSION,
    RECALL,
    read_session_inputs,
    recall_inputs,
    recall_prompt,
)
from recollect.agents.memory.conversation_units import Unit, dated_sessions
from recollect.agents.memory.prompt_room import prompt_room
from recollect.agents.memory.tool_memory_limits import budget_of
from recollect.agents.session import Session
from recollect.agents.side_by_side import ask_all
from recollect.chat import Renderer
from recollect.config import Config
from recollect.data.questions import Question, given_chunks, questions_of
from recollect.registries import agent
from recollect.retrieval.embedding_check import embedder_of
from recollect.retrieval.text_index import TextIndex
from recollect.runtime.threads import in_thread
from recollect.types import Task


@agent(
    roles=("memory", "qa"),
    reads_document=True,
    many_questions=True,
    limits_context=True,
    native_calls=True,
    limits_calls=True,
    baseline=True,
    tokens=conversation_limits.trajectory_tokens,
    window_problem=conversation_limits.window_problem,
    task_problem=conversation_limits.task_problem,
    embeds=conversation_limits.embeds,
    prompts=(READ_SESSION, RECALL),
)
async def conversation_qa(task: Task, session: Session, cfg: Config) -> str:
    """Read all sessions without a question, then answer every question from what was kept."""
    kind = cfg.conversation.memory
    task = _in_sessions(task, session, cfg)
    if kind == "notes":
        texts = dated_sessions(task.context, cfg.conversation.resolve_dates)
        return await tool_memory(replace(task, context=texts), session, cfg)
    kept = await _written(task, session, cfg) if kind == "recurrent" else _kept(task, session, cfg)
    room = min(prompt_room(recall_prompt(cfg, each.text, ""), session, cfg) for each in questions_of(task))
    shown = OneText(kept, session.binding("qa").renderer, room)
    if kept.index is None and (lost := shown.at(kept.at(None))[1]):
        _event(
            session, f"prompts have room for {room} tokens of what is remembered, {lost} are left out", left_out=lost
        )
    return await ask_all(task, session, lambda question, branch: _answer(question, branch, shown, cfg))


def _in_sessions(task: Task, session: Session, cfg: Config) -> Task:
    """The task with its document in sessions; a running text is cut into sections of memory.chunk_size."""
    if given_chunks(task.context) is not None:
        return task
    limits = cfg.memory
    return replace(task, context=list(session.sections(task.context or "", limits.chunk_size, limits.split, 0)))


def _kept(task: Task, session: Session, cfg: Config) -> Kept:
    """As many units as the budget takes, in their order; how many it refused is recorded."""
    kind, searched = cfg.conversation.memory, cfg.conversation.memory != "whole"
    if kind == "none":
        return Kept()
    finder = embedder_of(cfg) if conversation_limits.embeds(cfg) else None
    budget = budget_of(cfg) if searched else None
    dates, renderer = cfg.conversation.resolve_dates, session.binding("memory").renderer
    kept = kept_units(task, Rules(kind, dates, budget, renderer, finder))
    _record(session, kept, "sessions" if kind == "whole" else kind, cfg)
    return kept


def _record(session: Session, kept: Kept, what: str, cfg: Config) -> None:
    """Note what is kept, and what the budget refused."""
    said = f"kept {len(kept.units)} of {len(kept.units) + len(kept.refused)} {what}, {kept.tokens} tokens"
    if kept.refused:
        first = " ".join(kept.refused[0].names)
        said += f"; memory.budget={budget_of(cfg)} refused {len(kept.refused)}, the first of them {first}"
    session.note(said)
    _event(session, said, refused=len(kept.refused), used=kept.tokens)


async def _written(task: Task, session: Session, cfg: Config) -> Kept:
    """One text that the model writes anew after every session, no longer than the budget and a completion."""
    renderer = session.binding("memory").renderer
    most, size = conversation_limits.text_limits(cfg, renderer)
    memory, texts = "", [""]
    for text in dated_sessions(task.context, cfg.conversation.resolve_dates):
        for part in session.parts(text, size, cfg.memory.split):
            shown = read_session_inputs(part.strip(), memory, most)
            done = await session.turn(cfg, READ_SESSION, shown, role="memory", max_tokens=most)
            memory = cut_text(done.text.strip(), renderer, most, "right")
        texts.append(memory)
        session.note(memory)
    return Kept(texts=texts)


async def _answer(question: Question, branch: Session, shown: OneText, cfg: Config) -> str:
    kept, place = shown.kept, shown.kept.at(question.position)
    if kept.index is None:
        memory, _ = shown.at(place)
    else:
        renderer = branch.binding("qa").renderer
        room = prompt_room(recall_prompt(cfg, question.text, ""), branch, cfg)
        units = await _found(question, kept, kept.index, place, room, renderer, cfg)
        memory, left_out = fitting("\n".join(unit.text for unit in units), renderer, room, "center")
        _event(branch, question.text, found=[name for unit in units for name in unit.names], left_out=left_out)
    return (await branch.turn(cfg, RECALL, recall_inputs(question.text, memory), role="qa")).text.strip()


async def _found(
    question: Question, kept: Kept, index: TextIndex, place: int, room: int, renderer: Renderer, cfg: Config
) -> list[Unit]:
    """The best units for a question that fit the prompt, in their own order; at least one, which is cut then."""
    limits, first = cfg.conversation, kept.ends[place]
    wanted: dict[str, Any] = {"query": question.text, "most": limits.top_k, "method": limits.method, "first": first}
    hits = await in_thread(index.search, wanted) if limits.method != "bm25" else index.search(**wanted)
    chosen, used = list[int](), 0
    for hit in hits:
        used += len(renderer.encode(f"{kept.units[hit].text}\n"))
        if chosen and used > room:
            break
        chosen.append(hit)
    return [kept.units[i] for i in sorted(chosen)]


def _event(session: Session, title: str, **more: Any) -> None:
    """Record something that counts neither for nor against the use of tools."""
    about: Mapping[str, Any] = {"chunk": 0, "question": session.question, "tool": "memory", "title": title}
    session.trajectory.events.append({**about, "useful": None, **more})
