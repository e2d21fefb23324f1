"""What a memory is compared with: the whole document in the window, and the parts of it that a search finds."""

from __future__ import annotations

from collections.abc import Sequence

from recollect.agents.first_prompt import shortened
from recollect.agents.memory.prompt_room import prompt_room
from recollect.agents.memory.recurrent_prompts import section_prompt
from recollect.agents.session import Session
from recollect.agents.side_by_side import ask_all
from recollect.config import Config
from recollect.data.documents import pieces
from recollect.data.questions import Question, given_chunks
from recollect.registries import agent
from recollect.retrieval.embedding_check import embedder_of
from recollect.retrieval.text_index import TextIndex
from recollect.runtime.threads import in_thread
from recollect.types import Message, Task

LONG = 16  # characters of a token at most, on average: what is further inside is not looked at


@agent(roles=("qa",), reads_document=True, many_questions=True, limits_context=True, baseline=True)
async def concat(task: Task, session: Session, cfg: Config) -> str:
    """The document, cut in the centre to what the window takes, and the question."""
    chunks = given_chunks(task.context)
    parts = None if chunks is None else list(chunks)

    async def answer(question: Question, branch: Session) -> str:
        room = _room(question, branch, cfg)
        if parts is None:
            text = _ends(task, LONG * room)
        else:
            text = "\n".join(parts[: question.position])
        return await _say(question, text, branch, cfg)

    return await ask_all(task, session, answer)


def _embeds(cfg: Config) -> str:
    return f"rag.method={cfg.rag.method}" if cfg.rag.method != "bm25" else ""


@agent(roles=("qa",), reads_document=True, many_questions=True, limits_context=True, baseline=True, embeds=_embeds)
async def rag(task: Task, session: Session, cfg: Config) -> str:
    """The chunks that a search finds for a question, in their order in the document, and the question."""
    limits = cfg.rag
    finder = TextIndex(embedder_of(cfg) if limits.method != "bm25" else None)
    given = given_chunks(task.context)
    for chunk in given or session.sections(task.context, limits.chunk_size, "sentence", 0, "qa"):
        finder.add(chunk)

    async def answer(question: Question, branch: Session) -> str:
        first = question.position if given is not None else None
        wanted = {"query": question.text, "most": limits.top_k, "method": limits.method, "first": first}
        found: Sequence[int] = sorted(await in_thread(finder.search, wanted))
        session.note(f"{len(found)} of {len(finder.texts)} chunks: {', '.join(str(i + 1) for i in found)}")
        return await _say(question, "\n".join(finder.texts[i].strip() for i in found), branch, cfg)

    return await ask_all(task, session, answer)


async def _say(question: Question, text: str, session: Session, cfg: Config) -> str:
    """The answer to a question from a text, which is cut in the centre to what the window takes."""
    renderer, room = session.binding("qa").renderer, _room(question, session, cfg)
    text = shortened(text.strip(), renderer.spans(text.strip()), room, "center")
    prompt = section_prompt(cfg.recurrent.memory.config.style, question.text, text)
    return (await session.generate(prompt, role="qa")).text


def _ends(task: Task, most: int) -> str:
    """A document's text; of a very long one its beginning and its end, which are all that a window can hold."""
    head, tail = "", ""
    for piece in pieces(task.context):
        room = max(0, most - len(head))
        head, tail = head + piece[:room], (tail + piece[room:])[-most:]
    return head + tail


def _room(question: Question, session: Session, cfg: Config) -> int:
    """Tokens of text that fit beside the question."""
    frame = section_prompt(cfg.recurrent.memory.config.style, question.text, "")
    return prompt_room([Message("user", frame)], session, cfg)
