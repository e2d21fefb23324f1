"""What the loops of tool agents share: turns within limits, tool results within the context, and why it ended."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from recollect.agents.first_prompt import first_messages, given_system
from recollect.agents.session import Conversation, Session
from recollect.chat import TOOL_PARSERS, Parser, Renderer
from recollect.chat.schemas import Schema, as_list, as_text
from recollect.config import Config
from recollect.registries import PromptSpec
from recollect.runtime.plugins import find
from recollect.tools.observe import cut
from recollect.types import IMAGE_MARK, Completion, Message, Task, ToolCall, ToolResult

LEAST = 64  # characters of a tool result that are worth showing
NOTE = 300  # characters of a tool result in a trajectory's notes


class Tools(Protocol):
    """What a conversation may call."""

    schemas: list[Schema]

    async def call_all(self, calls: Sequence[ToolCall]) -> list[ToolResult]: ...


def start_dialogue(
    task: Task, session: Session, cfg: Config, system: str | None = None, native: bool = False
) -> Dialogue:
    """The conversation that a tool agent has about a task.

    ``system`` is used unless agent.system_prompt or agent.prompts give another; ``native`` lets the chat template show
    the tools.
    """
    start = session.fit(first_messages(task, cfg), cfg.data.max_prompt_length, cfg.data.truncation)
    chosen = given_system(cfg)
    given = chosen if chosen is not None else system or ""
    schemas = session.tools.schemas if session.tools else []
    messages = with_system(start, with_tools(given, schemas, native), chosen is None)
    shown = schemas if native and "{tools}" not in given else None
    return Dialogue(session, cfg, Conversation(messages, shown), session.tools)


class Dialogue:
    """A conversation that goes on, turn by turn, until a limit, a tool or the agent ends it."""

    def __init__(
        self, session: Session, cfg: Config, talk: Conversation, tools: Tools | None, role: str = "agent"
    ) -> None:
        self.session, self.cfg, self.talk, self.tools, self.role = session, cfg, talk, tools, role
        self.renderer: Renderer = session.binding(role).renderer
        self.schemas = tools.schemas if tools else []
        self.limit = cfg.agent.max_tokens_per_turn or session.sampling.max_tokens
        self.left = cfg.agent.max_turns
        self.last: Completion | None = None
        self.answer = ""

    async def turn(self, stop: Sequence[str] = ()) -> str | None:
        """What the model says next, for a parser; None when a limit has ended the episode."""
        fits = self.left == 0 or await fit(self.talk, self.renderer, self._room())
        if self.last is None and not fits:
            size = len(self.talk.upcoming(self.renderer))
            raise ValueError(
                f"the first prompt has {size} tokens, tools included, and only {self._room()} fit the context: "
                "raise agent.max_context_length, or lower agent.max_tokens_per_turn"
            )
        if self.left == 0 or not fits:
            self.end("context_full" if self.left else "max_turns")
            return None
        self.left -= 1
        self.last = done = await self.session.generate(self.talk, role=self.role, max_tokens=self.limit, stop=stop)
        self.answer = spoken(done.text)
        if done.stop == "length":
            self.end("max_tokens")
            return None
        return spoken(self.renderer.said(done.ids) if done.ids else done.text)

    async def use(self, calls: Sequence[ToolCall], message: str = "{}", inline: str = "") -> bool:
        """Run a turn's calls and add their results to the conversation; True when a tool ended the episode.

        ``message`` frames a result. ``inline`` frames it inside the model's own turn, if a stop string left that open.
        """
        results = [self._to_be_seen(result) for result in await self._results(calls)]
        for call, result in zip(calls, results, strict=True):
            self.session.note(f"{call.name}({_shown(call)}) → {cut(result.text, NOTE)}")
        for call, result in zip(calls, results, strict=True):
            if result.stop:
                self.end("answered" if call.name in ("answer", "finalize") else "tool_stop", result.text or self.answer)
                return True
        if inline and self.open and not any(r.images for r in results):
            text = inline.replace("{}", "\n".join(r.text for r in results))
            self.talk.add(Message("tool", text), inline=True)
        else:
            self.talk.add(*(shown(result, message) for result in results))
        return False

    def end(self, reason: str, answer: str | None = None) -> str:
        """Note why the episode ended; returns its answer, by default what was said last."""
        self.session.trajectory.stop = reason
        self.answer = self.answer if answer is None else answer.encode("utf-8", "replace").decode()
        return self.answer

    @property
    def open(self) -> bool:
        """True when a stop string, and no stop token, ended the last turn."""
        return self.last is not None and not (self.last.ids and self.last.ids[-1] in self.renderer.stop_ids)

    async def _results(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        if self.tools is None:
            return [ToolResult("There are no tools.", "unknown") for _ in calls]
        return await self.tools.call_all(calls)

    def _to_be_seen(self, result: ToolResult) -> ToolResult:
        """A result whose images the model can be shown; otherwise it is told that there are some."""
        bound = self.session.binding(self.role)
        if not result.images or bound.takes_messages or self.renderer.patches is not None:
            return result
        text = f"{result.text}\nThe tool returned an image, which you cannot see.".strip()
        return replace(result, text=text, images=())

    def _room(self) -> int | None:
        """Tokens that the next prompt may have, so that a whole turn fits after it."""
        window = getattr(self.session.binding(self.role).policy, "window", None)
        limits = [n for n in (window, self.cfg.agent.max_context_length) if n is not None]
        return min(limits) - self.limit if limits else None


def shown(result: ToolResult, frame: str) -> Message:
    """A result as a message; its images follow its text."""
    text = result.text.replace(IMAGE_MARK, "\ufffd") if result.images else result.text
    marks = IMAGE_MARK * len(result.images)
    return Message("tool", frame.replace("{}", f"{text}\n{marks}" if text and marks else text + marks), result.images)


def system_spec(own: str) -> tuple[PromptSpec]:
    """The one prompt of a tool agent: its system prompt, by default ``own``."""
    text = lambda cfg: own if cfg.agent.system_prompt is None else cfg.agent.system_prompt
    return (PromptSpec("system", text, text, demonstrations=False),)


def with_tools(text: str, schemas: Sequence[Schema], native: bool) -> str:
    """A text with {tools} replaced by the tools: as JSON, or as a plain list."""
    return text.replace("{tools}", as_text(schemas) if native else as_list(schemas))


def parser_for(cfg: Config, default: str) -> Parser:
    """The parser of agent.tool_parser, or the agent's own."""
    parser: Parser = find(cfg.agent.tool_parser or default, TOOL_PARSERS, "agent.tool_parser")
    return parser


def with_system(messages: Sequence[Message], text: str, keep: bool) -> list[Message]:
    """Messages after a system message; one that the data row has is kept below it, or is replaced."""
    if not text:
        return list(messages)
    theirs = [m.content for m in messages if m.role == "system" and keep]
    return [Message("system", "\n\n".join([text, *theirs])), *(m for m in messages if m.role != "system")]


def spoken(text: str) -> str:
    """What a turn says after its reasoning."""
    return text.rsplit("</think>", 1)[-1].strip()


async def fit(talk: Conversation, renderer: Renderer, room: int | None) -> bool:
    """Shorten tool results until the next prompt fits; False when even that is not enough."""
    ids = await talk.upcoming_soon(renderer)
    if room is None or len(ids) <= room:
        talk.accept(ids)
        return True
    whole, fitting, shortened = talk.pending, None, talk.pending
    low, high = LEAST, max((len(m.content) for m in whole if m.role == "tool"), default=0)
    while low <= high:
        most = (low + high) // 2
        talk.pending = [shortened_result(m, most) for m in whole]
        ids = talk.upcoming(renderer)
        if len(ids) <= room:
            low, fitting, shortened = most + 1, ids, talk.pending
        else:
            high = most - 1
    if fitting is not None:
        talk.pending = shortened
        talk.accept(fitting)
    return fitting is not None


def shortened_result(message: Message, most: int) -> Message:
    """A tool's result of at most so many characters; images stay, after the text."""
    if message.role != "tool":
        return message
    marks = IMAGE_MARK * len(message.images)
    return Message("tool", cut(message.content.replace(IMAGE_MARK, ""), most) + marks, message.images)


def _shown(call: ToolCall) -> str:
    return cut(json.dumps(call.arguments, ensure_ascii=False, default=str), NOTE) if call.arguments else ""
