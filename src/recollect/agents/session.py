"""What an agent loop is handed: a way to generate, and a record of every turn."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

from recollect.agents.first_prompt import fitted
from recollect.agents.wording import worded
from recollect.chat import Renderer
from recollect.chat.renderer import images_of
from recollect.chat.schemas import Schema
from recollect.chat.tokens import Tokens
from recollect.config import Config
from recollect.config.prompt_file import Wording, wording
from recollect.data.documents import ahead, centre_cut, is_long, length_of, sections
from recollect.policies.scripted import Expert
from recollect.registries import PromptSpec
from recollect.types import (
    IMAGE_MARK,
    Action,
    BadInput,
    Completion,
    Image,
    Message,
    Sampling,
    Task,
    ToolCall,
    ToolResult,
    Trajectory,
    Turn,
)

SHORT = 1 << 14  # characters of a document; the tokens of many such are remembered


class RunsTools(Protocol):
    """What a toolbox opens for a trajectory."""

    counts: Counter[str]

    async def call_all(self, calls: Sequence[ToolCall]) -> list[ToolResult]: ...


@dataclass(frozen=True)
class Binding:
    """What a role is bound to. A policy that is asked with messages has a renderer too: to count tokens with."""

    policy: Any  # a Policy, or one with ``chat`` (see policies/endpoint.py)
    renderer: Renderer
    trainable: bool = True

    @property
    def takes_messages(self) -> bool:
        """True when the policy is asked with messages and tool schemas, and makes a prompt of them itself."""
        return hasattr(self.policy, "chat")

    @property
    def shows_tools(self) -> bool:
        """True when the model is shown the tools without our listing them."""
        return self.takes_messages or self.renderer.shows_tools


class Conversation:
    """A context that grows: each generation appends the sampled ids, each message the ids of its text."""

    def __init__(self, messages: Sequence[Message], tools: Sequence[Schema] | None = None) -> None:
        self.pending = list(messages)
        self.tools = tools  # schemas that the chat template shows
        self.inline = False
        self.prompt: list[int] = []
        self.sampled: list[int] = []
        self.log: list[Message | Completion] = []  # the same as messages, for a policy that is asked with those
        self.images: tuple[Image, ...] = ()  # those in the prompt

    def add(self, *messages: Message, inline: bool = False) -> None:
        """Messages that follow what was generated last; ``inline`` puts their text into that turn, which goes on."""
        self.pending += messages
        self.inline = inline

    def upcoming(self, renderer: Renderer) -> list[int]:
        """The next prompt as it would be now."""
        text = self._new_text(renderer)
        return self.prompt if text is None else self._grown(renderer, renderer.encode(text))

    async def upcoming_soon(self, renderer: Renderer) -> list[int]:
        """The same, tokenised together with what other agents ask for at this moment."""
        text = self._new_text(renderer)
        return self.prompt if text is None else self._grown(renderer, await renderer.encode_soon(text))

    def _new_text(self, renderer: Renderer) -> str | None:
        """What the next prompt has that is not tokenised yet; None: nothing."""
        if not self.prompt:
            return renderer.prompt_text(self.pending, self.tools)
        if self.inline:
            assert not images_of(self.pending), "what goes on inside a turn is text alone"
            return renderer.harmless("".join(m.content for m in self.pending))
        return renderer.extension_text(self.pending, self.tools) if self.pending or self.sampled else None

    def _grown(self, renderer: Renderer, new: list[int]) -> list[int]:
        """The next prompt, with the ids of `_new_text`."""
        new = renderer.with_images(new, images_of(self.pending))
        if self.inline or not self.prompt:
            return [*self.prompt, *self.sampled, *new]
        return renderer.extended(self.prompt, self.sampled, new)

    def accept(self, ids: list[int]) -> None:
        """Take ids, which ``upcoming`` made, as the next prompt."""
        self.log += self.pending
        self.images += tuple(images_of(self.pending))
        self.prompt, self.pending, self.sampled, self.inline = ids, [], [], False

    def keep_images(self, renderer: Renderer, most: int) -> None:
        """Leave out all but the last images, of those that are there and those that come next."""
        drop = len(self.images) + len(images_of(self.pending)) - most
        if drop <= 0 or not self.images:
            return
        drop = min(drop, len(self.images))
        self.prompt, self.images = renderer.without_images(self.prompt, drop), self.images[drop:]
        for i, item in enumerate(self.log):
            if drop > 0 and isinstance(item, Message) and item.images:
                gone = min(drop, len(item.images))
                self.log[i] = Message(item.role, item.content.replace(IMAGE_MARK, "", gone), item.images[gone:])
                drop -= gone

    def add_reply(self, done: Completion) -> None:
        """Take what was generated as the end of the conversation so far."""
        self.sampled = list(done.ids)
        self.log.append(done)


class SessionTools:
    """The tools of one trajectory, open while its agent runs."""

    def __init__(self, schemas: Sequence[Schema], open_tools: RunsTools, trajectory: Trajectory) -> None:
        self.schemas, self.open_tools, self.trajectory = list(schemas), open_tools, trajectory

    async def call_all(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Run calls side by side; results in their order. What goes wrong is a result too. Rewards are added up."""
        results = await self.open_tools.call_all(calls)
        asked, turn = [c.error if c.arguments is None else c.arguments for c in calls], len(self.trajectory.turns)
        self.trajectory.actions += [
            Action(call.name, given, result.text, result.outcome, turn)
            for call, given, result in zip(calls, asked, results, strict=True)
        ]
        self.trajectory.tool_reward += sum(r.reward for r in results if r.reward is not None)
        return results


class Session:
    """One attempt at one task. It belongs to a single trajectory and is never shared."""

    def __init__(
        self, task: Task, trajectory: Trajectory, roles: dict[str, Binding], sampling: Sampling, key: str
    ) -> None:
        self.task, self.trajectory, self.roles, self.sampling, self.key = (
            task,
            trajectory,
            roles,
            sampling,
            key,
        )
        self.policy_error: Exception | None = None  # the last error of a policy, so that a failure can name it
        self.tools: SessionTools | None = None  # those of agent.tools
        self.tools_error: Exception | None = None  # why they could not be opened
        self.asked = 0  # generations so far; the noise of each depends on its number
        self.question = 0  # the question that its turns belong to; 0: all
        self.parent: Session | None = None
        self.sampled = 0  # tokens of the turns so far, those of branches included
        self.share_read = 0.0  # of the document, where its length is known
        self.ended = False

    def binding(self, role: str) -> Binding:
        """The policy that plays a role; the one named ``*`` plays every role that has none of its own."""
        return self.roles.get(role) or self.roles["*"]

    async def generate(
        self,
        prompt: str | Sequence[Message] | Conversation,
        *,
        role: str = "agent",
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
    ) -> Completion:
        """Sample one completion and record it as a turn. A string is a single user message in a fresh context."""
        bound = self.binding(role)
        if isinstance(prompt, Conversation):
            talk = prompt
        else:
            talk = Conversation([Message("user", prompt)] if isinstance(prompt, str) else prompt)
        talk.accept(ids := await talk.upcoming_soon(bound.renderer))
        sampling = replace(
            self.sampling,
            max_tokens=max_tokens or self.sampling.max_tokens,
            stop=tuple(stop),
            stop_ids=bound.renderer.stop_ids,
            key=f"{self.key}/{self.asked}",
            keep=isinstance(prompt, Conversation),
        )
        self.asked += 1
        try:
            if isinstance(bound.policy, Expert):
                bound = replace(bound, policy=bound.policy.at(self.task, self.trajectory))
            done = await _reply(bound, talk, ids, sampling)
        except Exception as error:
            self._blame(error)
            raise
        talk.add_reply(done)
        self._count(len(done.ids))
        kept = array("q" if talk.images else "i", ids)  # a long document's prompts hold all of it
        made = Turn(role, kept, done, bound.trainable, sampling.temperature, self.question, talk.images)
        self.trajectory.turns.append(made)
        return done

    async def turn(
        self,
        cfg: Config,
        prompt: PromptSpec,
        inputs: Mapping[str, str],
        *,
        role: str,
        max_tokens: int | None = None,
        render: Callable[[Wording], Sequence[Message]] | None = None,
    ) -> Completion:
        """A turn with one of the agent's prompts, in the wording of agent.prompts or its own."""
        said = wording(cfg, prompt)
        messages = render(said) if render is not None else worded(said, inputs)
        return await self.generate(messages, role=role, max_tokens=max_tokens)

    def branch(self, name: str, question: int = 0) -> Session:
        """A session for one of several conversations that go on side by side; ``join`` adds its record to this one's.

        Its noise depends on its name and not on what the others do meanwhile.
        """
        trajectory = Trajectory(self.trajectory.task_id, self.trajectory.sample)
        made = Session(self.task, trajectory, self.roles, self.sampling, f"{self.key}/{name}")
        made.question, made.parent = question, self
        if self.tools is not None:
            made.tools = SessionTools(self.tools.schemas, self.tools.open_tools, trajectory)
        return made

    def join(self, branch: Session) -> None:
        """Take over the record of a branch, after all that is recorded so far."""
        mine, theirs = self.trajectory, branch.trajectory
        mine.actions += [replace(action, turn=action.turn + len(mine.turns)) for action in theirs.actions]
        mine.turns += theirs.turns
        mine.events += theirs.events
        mine.tool_reward += theirs.tool_reward
        mine.tool_calls = dict(Counter(mine.tool_calls) + Counter(theirs.tool_calls))

    def _count(self, tokens: int) -> None:
        self.sampled += tokens
        if self.parent is not None:
            self.parent._count(tokens)

    def _blame(self, error: Exception) -> None:
        self.policy_error = error
        if self.parent is not None:
            self.parent._blame(error)

    def sections(self, context: Any, size: int, split: str, most: int, role: str = "memory") -> Iterator[str]:
        """A document in sections of at most ``size`` of the role's tokens."""
        renderer = self.binding(role).renderer
        parts = sections(context, lambda text: token_offsets(renderer.tokenizer, text), size, split, renderer.learn)
        return self._reading(centre_cut(ahead(parts) if is_long(context) else parts, most), length_of(context))

    def _reading(self, parts: Iterator[str], length: int | None) -> Iterator[str]:
        """The same sections; what has been read is counted."""
        read = 0
        for part in parts:
            yield part
            read += len(part)
            if length:
                self.share_read = min(1.0, read / length)

    def parts(self, section: str, size: int, split: str, role: str = "memory") -> list[str]:
        """A section as it was given; one of more than ``size`` of the role's tokens in several parts."""
        if len(section.encode()) <= size:  # a token has at least a byte
            return [section]
        return [*self.sections(section, size, split, 0, role)] or [section]

    def fit(self, messages: Sequence[Message], limit: int, truncation: str, role: str = "agent") -> list[Message]:
        """Messages whose rendered prompt has at most ``limit`` of the role's tokens; the last is cut if it must be."""
        return fitted(messages, self.binding(role).renderer, limit, truncation)

    def note(self, text: str) -> None:
        """Keep something to show with the trajectory, such as the memory after a section."""
        self.trajectory.notes.append(text)


async def _reply(bound: Binding, talk: Conversation, ids: Sequence[int], sampling: Sampling) -> Completion:
    """Ask the policy with ids or messages. Text of an outside policy gets ids of our tokenizer, to count and show."""
    if not bound.takes_messages:
        return await bound.policy.generate(ids, sampling)
    done: Completion = await bound.policy.chat(talk.log, talk.tools, sampling)
    end = [bound.renderer.end_id] if done.stop == "stop" else []
    return replace(done, ids=(*bound.renderer.encode(done.text), *end))


def token_offsets(tokenizer: Any, text: str) -> Tokens:
    """Start and end character of each token. The attempts at a task read the same document side by side."""
    return (_short_offsets if len(text) < SHORT else _long_offsets)(tokenizer, text)


def _offsets(tokenizer: Any, text: str) -> Tokens:
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        raise BadInput("sections are counted in tokens, which needs a fast tokenizer (a tokenizer.json)")
    return Tokens(tokenizer.backend_tokenizer, text)


_long_offsets, _short_offsets = lru_cache(maxsize=16)(_offsets), lru_cache(maxsize=1024)(_offsets)
