"""What settings can name: agents, estimators, losses, trackers, tools, domains, rewards.

A registry knows the module that fills it, and imports it when somebody first looks. So a folder that stands low can
check a name, or read a spec, without importing what stands above it. Nowhere else does a string cross the order of
the folders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

from recollect.runtime.plugins import find
from recollect.types import BadInput

if TYPE_CHECKING:
    from recollect.chat import Renderer
    from recollect.config import Config
    from recollect.domains.domain import Domain
    from recollect.domains.families import Family
    from recollect.types import Task

    TokenCounts = tuple[int, int, int, int]  # turns, prompt, response, the longest turn

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


_READ_ONLY: ContextVar[bool] = ContextVar("read_only", default=False)


@contextmanager
def only_read() -> Iterator[None]:
    """Inside, no function of the user's own is loaded: stored settings that are read must not run anything."""
    token = _READ_ONLY.set(True)
    try:
        yield
    finally:
        _READ_ONLY.reset(token)


class Registry(MutableMapping[str, T]):
    """Names and what they mean, in the order in which they were added."""

    def __init__(self, home: str) -> None:
        """``home`` is the module whose import adds everything that comes with recollect."""
        self.home, self._loaded, self._lock = home, False, RLock()
        self._members: dict[str, T] = {}

    def _filled(self) -> dict[str, T]:
        with self._lock:
            if not self._loaded:
                self._loaded = True  # the module may look at its own registry while it is imported
                try:
                    import_module(self.home)
                except BaseException:
                    self._loaded = False
                    raise
        return self._members

    def __getitem__(self, name: str) -> T:
        return self._filled()[name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._filled()

    def __setitem__(self, name: str, member: T) -> None:
        self._members[name] = member

    def __delitem__(self, name: str) -> None:
        del self._members[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._filled())

    def __len__(self) -> int:
        return len(self._filled())

    def __repr__(self) -> str:
        return f"Registry({', '.join(self)})"


class Specs(Registry[T]):
    """Specs by name. ``module:function`` and ``file.py:function`` are names too, with what their decorator says."""

    def __init__(self, home: str, mark: str) -> None:
        """``mark`` is the attribute of a function in which its decorator leaves the spec."""
        super().__init__(home)
        self.mark = mark

    def of(self, name: object) -> T | None:
        """The spec behind a name; None where there is none, or the user's own function says nothing about itself."""
        if not isinstance(name, str):
            return None
        if ":" not in name:
            return self.get(name)
        if _READ_ONLY.get():
            return None
        try:
            return getattr(find(name, {}, ""), self.mark, None)
        except BadInput:
            return None  # whoever calls the function says why

    def knows(self, name: object, fact: str) -> bool:
        """Whether a fact holds; of a user's own function without a decorator nothing is known."""
        spec = self.of(name)
        return spec is not None and bool(getattr(spec, fact))

    def those(self, fact: str) -> list[str]:
        """The built-in names for which a fact holds."""
        return [name for name in self if self.knows(name, fact)]


@dataclass(frozen=True)
class PromptSpec:
    """A prompt of an agent, which `agent.prompts` may reword. Templates hold ``{name}`` for each of its inputs."""

    name: str
    template: Callable[[Config], str]  # the whole prompt as it is without a file
    instruction: Callable[[Config], str]  # its wording alone
    frame: Callable[[Config], str] | None = None  # its inputs alone; None: a system prompt, which is no template
    inputs: Callable[[Config], tuple[str, ...]] = lambda cfg: ("question",)  # what it shows, or its demonstrations do
    also: tuple[str, ...] = ()  # what it may leave out
    demonstrations: bool = True


@dataclass(frozen=True)
class AgentSpec:
    """A loop, and what the rest of the program has to know about it."""

    name: str
    loop: Callable[..., Any]  # async (task, session, cfg) → the answer
    roles: tuple[str, ...] = ("agent",)
    reads_document: bool = False  # a task without a document is refused
    question_alone: bool = False  # it never reads a document, and the user is told so
    many_questions: bool = False  # it answers all questions of a task, each in turn
    asks_first: bool = False  # its first prompt is the question, so data.max_prompt_length is its limit
    limits_context: bool = False  # it keeps its prompts below agent.max_context_length
    uses_tools: bool = False  # it takes agent.tools
    needs_tools: bool = False  # it cannot work without any
    calls: tuple[str, ...] = ()  # tools by name, of which its syntax needs one
    native_calls: bool = False  # it calls tools in the syntax of the model's chat template
    limits_calls: bool = False  # memory.max_calls, max_length and truncate_side limit its tool calls and their results
    by_source: bool = False  # its tools are those of the domain that the task's source names
    runs_programs: bool = False  # it runs what the model writes, in the sandbox
    sees: bool = False  # it shows its model images
    baseline: bool = False  # `recollect eval --baseline` takes it
    notes_sections: bool = False  # it notes its memory after each section that it reads
    section_limit: Callable[[Config], tuple[str, int]] | None = None  # key and tokens of the longest section it reads
    longest_completion: Callable[[Config], int] | None = None  # default data.max_response_length
    tokens: Callable[[Config, Task, Renderer], TokenCounts] | None = None  # of one trajectory; default a conversation's
    window_problem: Callable[[Config, Renderer, int, str, str], str] | None = None  # see agents/window.py
    task_problem: Callable[[Config, Task], str] | None = None  # why it cannot attempt a task; empty: it can
    embeds: Callable[[Config], str] | None = None  # the setting for which it needs an embedding model; empty: none
    prompts: tuple[PromptSpec, ...] = ()  # those that agent.prompts may reword


@dataclass(frozen=True)
class EstimatorSpec:
    """An estimator of advantages, and what a run has to have for it."""

    name: str
    function: Callable[..., Any]  # called like those of recollect.algos.ADVANTAGES
    needs_critic: bool = False  # it reads values
    needs_greedy: bool = False  # it reads the reward of a greedy attempt at each task
    compares: bool = False  # it compares attempts at a task: from one alone nothing is learnt


@dataclass(frozen=True)
class TrackerSpec:
    """A tracker of metrics, and what it needs to be installed."""

    name: str
    make: Callable[..., Any]  # a class of trackers, or a function of (step, row) that is called for each row
    packages: tuple[str, ...] = ()
    extra: str = ""  # the extra of recollect that brings them


AGENTS: Specs[AgentSpec] = Specs("recollect.agents.loops", "__agent__")
ESTIMATORS: Specs[EstimatorSpec] = Specs("recollect.algos.advantage", "__estimator__")
LOSSES: Registry[Callable[..., Any]] = Registry("recollect.algos.loss")
KL: Registry[Callable[..., Any]] = Registry("recollect.algos.kl")
AGGREGATIONS: Registry[Callable[..., Any]] = Registry("recollect.algos.aggregation")
TRACKERS: Specs[TrackerSpec] = Specs("recollect.runs.trackers", "__tracker__")
TOOLS: Registry[Any] = Registry("recollect.tools")
DOMAINS: Registry[Domain] = Registry("recollect.domains.registry")
FAMILIES: Registry[Family] = Registry("recollect.domains.families")
REWARDS: Registry[Callable[..., Any]] = Registry("recollect.rewards")


def agent(name: str | None = None, **facts: Any) -> Callable[[F], F]:
    """Say what is known about a loop: ``@agent(roles=("memory", "qa"), reads_document=True)``."""
    return _decorator(AGENTS, AgentSpec, name, facts)


def estimator(name: str | None = None, **facts: Any) -> Callable[[F], F]:
    """Say what is known about an estimator: ``@estimator(compares=True)``."""
    return _decorator(ESTIMATORS, EstimatorSpec, name, facts)


def tracker(name: str | None = None, **facts: Any) -> Callable[[F], F]:
    """Say what a tracker needs: ``@tracker(packages=("mlflow",), extra="mlflow")``."""
    return _decorator(TRACKERS, TrackerSpec, name, facts)


def _decorator(registry: Specs[T], kind: Callable[..., T], name: str | None, facts: dict[str, Any]) -> Callable[[F], F]:
    """Leave a spec on what is decorated; what comes with recollect is also known by its name alone."""

    def add(found: F) -> F:
        known_as = name or found.__name__
        spec = kind(known_as, found, **facts)
        setattr(found, registry.mark, spec)
        if found.__module__.startswith("recollect."):
            registry[known_as] = spec
        return found

    return add
