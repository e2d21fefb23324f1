"""Memory that is edited through tools: read a document chunk by chunk, keep notes, answer every question from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from recollect.agents.first_prompt import shortened
from recollect.agents.memory import tool_memory_limits
from recollect.agents.memory.tool_memory_limits import budget_of
from recollect.agents.memory.tool_prompts import MEMORY_PROMPTS, question_prompt, read_prompt, shown_state
from recollect.agents.memory.tools_by_phase import MemoryTools, take_counts, toolbox
from recollect.agents.session import Conversation, Session, SessionTools
from recollect.agents.side_by_side import ask_all
from recollect.agents.tool_loop import Dialogue, parser_for, with_system, with_tools
from recollect.chat import Renderer
from recollect.chat.templates import LISTING, LISTINGS
from recollect.config import Config
from recollect.data.documents import centre_cut
from recollect.data.questions import Question, given_chunks, questions_of
from recollect.registries import agent
from recollect.retrieval.embedding_check import embedder_of
from recollect.retrieval.text_index import TextIndex
from recollect.tools.memory import Memory
from recollect.tools.memory.workspace import Held, MemoryWorkspace, state
from recollect.types import Message, Task


@agent(
    roles=("memory", "qa"),
    reads_document=True,
    many_questions=True,
    limits_context=True,
    uses_tools=True,
    native_calls=True,
    limits_calls=True,
    baseline=True,
    section_limit=tool_memory_limits.section_limit,
    tokens=tool_memory_limits.trajectory_tokens,
    window_problem=tool_memory_limits.window_problem,
    embeds=tool_memory_limits.embeds,
)
async def tool_memory(task: Task, session: Session, cfg: Config) -> str:
    """One conversation per chunk that edits the memory, then one per question, side by side, that looks things up."""
    reader = MemoryReader(task, session, cfg)
    then = {0: reader.memory.snapshot()}
    asked = {question.position for question in questions_of(task)}
    for parts in chunks_of(task, session, cfg):
        await reader.read(parts)
        if reader.chunk in asked:
            then[reader.chunk] = reader.memory.snapshot()
    now = reader.memory.snapshot()
    return await ask_all(task, session, lambda q, b: reader.answer(q, b, then.get(_place(q, reader.chunk), now)))


def _place(question: Question, last: int) -> int:
    return last if question.position is None else min(question.position, last)


def chunks_of(task: Task, session: Session, cfg: Config) -> Iterator[list[str]]:
    """The document as it is read: the chunks it came in, long ones in parts, or sections of so many tokens."""
    limits = cfg.memory
    given = given_chunks(task.context)
    if given is not None:
        chunks = centre_cut(given, limits.max_chunks)
        return (session.parts(chunk, limits.chunk_size, limits.split) for chunk in chunks)
    made = session.sections(task.context or "", limits.chunk_size, limits.split, limits.max_chunks)
    return ([section] for section in made)


@dataclass
class Talk:
    """One conversation about the memory."""

    session: Session
    workspace: MemoryWorkspace
    role: str
    prompt: str


class MemoryReader:
    """The memory of one trajectory and the conversations that work on it."""

    def __init__(self, task: Task, session: Session, cfg: Config) -> None:
        self.task, self.session, self.cfg, self.limits = task, session, cfg, cfg.memory
        renderer = session.binding("memory").renderer
        self.memory = Memory(cache(lambda text: len(renderer.encode(text))), budget_of(cfg))
        self.held: Held = set()
        self.chunk = 0
        find = embedder_of(cfg) if "embedding" in self.limits.search else None
        self.embedder = find
        self.source = TextIndex(find) if self.limits.search_in == "source" else None

    async def read(self, parts: Sequence[str]) -> None:
        """Read the next chunk, in one conversation for each of its parts."""
        self.chunk += 1
        for i, part in enumerate(parts):
            await self._read(part, f"chunk-{self.chunk}" + (f".{i + 1}" if i else ""))
        if self.source is not None:
            self.source.add("".join(parts))

    async def _read(self, text: str, name: str) -> None:
        """Read a text: the model edits the memory until a turn has no call. No question is shown."""
        before = state(self.memory)
        workspace = MemoryWorkspace(self.memory, self.chunk, held=self.held)
        prompt = read_prompt(self.limits.style, text.strip(), self._shown(self.memory, "memory"))
        branch = self.session.branch(name)
        try:
            await self._converse(Talk(branch, workspace, "memory", prompt))
        finally:
            workspace.settle(before)
            branch.trajectory.events += workspace.events
            self.session.join(branch)
        self.session.note(_difference(before, state(self.memory)))

    async def answer(self, question: Question, branch: Session, memory: Memory) -> str:
        """Answer a question from the memory as it was at the question's place in the document."""
        workspace = MemoryWorkspace(memory, question=branch.question, top_k=self.limits.top_k, embedder=self.embedder)
        workspace.source, workspace.read = self.source, _place(question, self.chunk)
        prompt = question_prompt(self.limits.style, question.text, self._shown(memory, "qa"))
        try:
            return await self._converse(Talk(branch, workspace, "qa", prompt))
        finally:
            branch.trajectory.events += workspace.events

    async def _converse(self, talk: Talk) -> str:
        """Turns and tool calls until a turn has no call, or a limit ends it; returns what was said last."""
        cfg, session = self.cfg, talk.session
        bound = session.binding(talk.role)
        syntax = cfg.agent.tool_parser or bound.renderer.parser
        parse = parser_for(cfg, syntax)
        box = toolbox(talk.role, tuple(self.limits.search))
        own = session.tools if talk.role == "qa" else None
        async with box.open(self.task, session.trajectory, talk.workspace) as open_tools:
            memory = SessionTools(box.schemas, open_tools, session.trajectory)
            tools = MemoryTools(memory, own, talk.workspace, self.limits)
            messages, shown = self._start(talk.prompt, tools, bound.shows_tools, syntax)
            chat = Dialogue(session, cfg, Conversation(messages, shown), tools, talk.role)
            chat.left = (talk.role == "memory" and self.limits.max_turns) or chat.left
            while (text := await chat.turn()) is not None:
                calls = parse(text, tools.schemas)
                if not calls or await chat.use(calls):
                    break
            take_counts(session, open_tools)
        return chat.answer

    def _start(
        self, prompt: str, tools: MemoryTools, shows_tools: bool, syntax: str
    ) -> tuple[list[Message], list[dict[str, object]] | None]:
        """The first messages, and the schemas that the template or the server shows; the plain wording shows none."""
        given = self.cfg.agent.system_prompt
        system = MEMORY_PROMPTS[self.limits.style].system.format(budget=self.memory.budget) if given is None else given
        if not system and self.limits.style == "plain":
            return [Message("user", prompt)], None
        native = shows_tools and "{tools}" not in system
        if not native and "{tools}" not in system:
            system = f"{system}\n\n{LISTINGS.get(syntax, LISTING)}"
        text = with_tools(system, tools.schemas, True)
        return with_system([Message("user", prompt)], text, False), list(map(dict, tools.schemas)) if native else None

    def _shown(self, memory: Memory, role: str) -> dict[str, str]:
        """What a prompt says about a memory: the end of its core text, its newest titles, its size."""
        renderer = self.session.binding(role).renderer
        core = last_tokens(memory.core, self.limits.core_length, renderer)
        titles = newest_titles(list(memory.notes), self.limits.titles_length, renderer)
        return shown_state(core, titles, len(memory.notes), memory.used(), memory.budget)


def last_tokens(text: str, most: int, renderer: Renderer) -> str:
    """The end of a text, at most so many tokens."""
    return shortened(text, renderer.spans(text), most, "left").strip() if text else ""


def newest_titles(titles: list[str], most: int, renderer: Renderer) -> str:
    """The newest titles that fit so many tokens, in the order in which they were written."""
    shown: list[str] = []
    for title in reversed(titles):
        if len(renderer.encode(", ".join([title, *shown]))) > most:
            break
        shown.insert(0, title)
    return ", ".join(shown)


def _difference(before: dict[str, str], after: dict[str, str]) -> str:
    """What a chunk changed, a line for each note, for people."""
    lines = [f"+ {t}: {c}" for t, c in after.items() if t not in before]
    lines += [f"~ {t}: {c}" for t, c in after.items() if t in before and before[t] != c]
    lines += [f"- {t}" for t in before if t not in after]
    return "\n".join(lines)
