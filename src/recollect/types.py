"""The carriers that flow through the system, from a task to a training sequence.

Everything here is plain Python, but for the arrays of a ``Sample``: no torch, no tokenizer, no I/O. The flow can be
read from the types alone: ``Task`` → ``Turn`` → ``Trajectory`` → ``Group`` → ``Sample``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    import numpy as np


IMAGE_MARK = "\ufffc"  # where an image stands in a text (U+FFFC, the object replacement character)
LONGEST_MESSAGE = 10_000  # characters: a message may repeat what it is about


class BadInput(ValueError):
    """Something the user gave cannot work. The message is one line that says what to do; the exit code is 2."""

    def __init__(self, message: object = "") -> None:
        text = str(message)
        cut = f"{text[:LONGEST_MESSAGE]} … ({len(text):,} characters in all)"
        super().__init__(text if len(text) <= LONGEST_MESSAGE else cut)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Image:
    """A picture as its file has it. `recollect.images` reads them; equal ones are one object there."""

    data: bytes = field(repr=False, compare=False)
    digest: str  # SHA-256 of the file, in hexadecimal
    width: int
    height: int
    kind: str = "png"  # the file's format

    def __deepcopy__(self, memo: dict[int, Any]) -> Image:
        return self


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation. Each `IMAGE_MARK` in its content stands for one of its images, in order."""

    role: str  # "system", "user", "assistant" or "tool"
    content: str
    images: tuple[Image, ...] = ()


@dataclass(slots=True)
class Task:
    """What an agent has to solve."""

    id: str  # unique within its data set; sampling noise is derived from it
    question: str
    context: Any = None  # the document: text, or an object with pieces() that streams it
    answers: tuple[str, ...] = ()  # accepted answers
    source: str = "default"  # data source; validation is reported per source
    fields: dict[str, Any] = field(default_factory=dict)  # everything else the data row held
    place: str = ""  # file and row, for messages
    images: tuple[Image, ...] = ()  # of the prompt, in the order of the marks in its messages; the question's are last


class Matcher(Protocol):
    """Follows one completion through a grammar, token by token."""

    @property
    def ended(self) -> bool:
        """True when nothing but an end may come."""

    def allowed(self) -> np.ndarray:
        """Which ids may come next: [words] int32, id i is bit i % 32 of word i // 32."""

    def take(self, token: int) -> None:
        """Go on by a sampled id that does not end the completion."""


class Grammar(Protocol):
    """What form a completion must have."""

    def start(self) -> Matcher:
        """A matcher at the beginning."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to sample one completion."""

    temperature: float = 1.0  # 0 is greedy
    top_p: float = 1.0
    top_k: int = -1  # -1 or 0: off
    max_tokens: int = 256
    stop: tuple[str, ...] = ()  # strings; the completion ends with the token that completes one
    stop_ids: tuple[int, ...] = ()  # token ids, the model's end-of-turn among them
    seed: int = 0
    key: str = ""  # names the request; the noise of token i depends on (seed, key, i) alone
    keep: bool = False  # a hint: a later prompt will extend this one and its completion
    grammar: Grammar | None = None  # the form that the text must have; log-probabilities are those without it

    @property
    def noise_seed(self) -> int:
        """A 63-bit number that depends on the run's seed and the request's key alone."""
        return (
            int.from_bytes(hashlib.blake2b(f"{self.seed}|{self.key}".encode(), digest_size=8).digest(), "little") >> 1
        )


@dataclass(frozen=True, slots=True)
class Completion:
    """What a policy sampled."""

    ids: tuple[int, ...]  # the sampled ids, the stop token included when there was one
    logprobs: tuple[float, ...]  # log-probability of each id at the sampling temperature
    stop: Literal["stop", "length"]  # ended by itself, or cut by max_tokens
    version: int  # version of the weights that sampled it
    text: str  # decoded, without special tokens
    message: Mapping[str, Any] | None = None  # an endpoint's own form of it, which is sent back to it


@dataclass(slots=True)
class Turn:
    """One generation inside a trajectory."""

    role: str  # "agent", "memory", "qa", …
    prompt_ids: Sequence[int]
    completion: Completion
    trainable: bool = True  # False when the role is bound to a policy that is not being trained
    temperature: float = 1.0
    question: int = 0  # 0: it serves every question of the task; i: it belongs to question i alone
    images: tuple[Image, ...] = ()  # those in its prompt: the ids of an image lead to it while somebody holds it


FailureKind = Literal["timeout", "agent", "policy", "endpoint", "tools", "reward"]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a trajectory has no valid outcome. It is excluded from statistics and counted in the metrics."""

    kind: FailureKind
    message: str


@dataclass(frozen=True, slots=True)
class Score:
    """A reward: the number that trains, and its named parts."""

    total: float
    parts: dict[str, float] = field(default_factory=dict)
    roles: dict[str, float] = field(default_factory=dict)  # rewards of single roles, where they are not the total
    questions: tuple[float, ...] = ()  # of a task with several: [0] turns that serve them all, [i] those of question i


@dataclass(frozen=True, slots=True)
class Action:
    """One use of a tool: what the model gave it, and what it was shown of the result."""

    tool: str
    input: Any  # the arguments; what was wrong with them where the call could not be read
    output: str
    outcome: str = "ok"
    turn: int = field(default=0, compare=False)  # how many turns there were when it was called


ToolOutcome = Literal["ok", "malformed", "unknown", "arguments", "exception", "timeout"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """What the model asked for. ``error`` says what was wrong with its text; then there are no arguments."""

    name: str
    arguments: dict[str, Any] | None
    id: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What the model is shown. ``stop`` ends the episode; ``reward`` is a part that the tool adds to the score."""

    text: str
    outcome: ToolOutcome = "ok"
    stop: bool = False
    reward: float | None = None
    cut: int = 0  # characters of the tool's text that were left out
    images: tuple[Image, ...] = ()  # shown after the text


@dataclass(slots=True)
class Trajectory:
    """One attempt at a task."""

    task_id: str
    sample: int  # index within its group
    turns: list[Turn] = field(default_factory=list)
    answer: str = ""
    stop: str = ""  # why the agent stopped
    score: Score | None = None
    failure: Failure | None = None
    notes: list[str] = field(default_factory=list)  # what the agent wants shown: memory after each chunk
    tool_calls: dict[str, int] = field(default_factory=dict)  # how many calls, by outcome and by tool
    tool_reward: float = 0.0  # sum of what tools gave; a part of the score
    actions: list[Action] = field(default_factory=list)  # every tool call, in order
    success: bool | None = None  # what a domain's check of the outcome said; None: there was nothing to check against
    world: Any = None  # what the tools of this attempt act on, such as a database; it is not stored
    answers: list[str] = field(default_factory=list)  # of a task with several questions, each one's answer
    events: list[dict[str, Any]] = field(default_factory=list)  # what memory tools did, call by call

    @property
    def valid(self) -> bool:
        """True when this trajectory has a reward that statistics may use."""
        return self.failure is None and self.score is not None

    @property
    def reward(self) -> float:
        """The total score; only valid trajectories have one."""
        assert self.score is not None, "an unscored trajectory has no reward"
        return self.score.total


@dataclass(slots=True)
class Group:
    """The trajectories of one task."""

    task: Task
    trajectories: list[Trajectory] = field(repr=False)  # asyncio.run writes out what it returns, and drops the text


@dataclass(slots=True)
class Sample:
    """One training sequence: a run of turns in which each prompt extends the one before."""

    ids: np.ndarray  # [tokens]
    mask: np.ndarray  # [tokens] True where the id was sampled by a trainable role
    logprobs: np.ndarray  # [tokens] the sampler's log-probability where mask is True, else 0
    trajectory: int  # index of the trajectory within the batch
    group: int  # index of the group within the batch
    temperature: float = 1.0
    roles: list[tuple[str, int]] = field(default_factory=list)  # who sampled how many of the trained ids; empty: one
    question: int = 0  # the question that its turns belong to; 0: all
    images: tuple[Image, ...] = ()  # those among its ids


class Policy(Protocol):
    """Generates completions for prompts of token ids."""

    @property
    def version(self) -> int: ...

    def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Awaitable[Completion]: ...


Reward = Callable[..., Any]  # (answer, task, trajectory) by name; returns a number, bool, dict or Score
