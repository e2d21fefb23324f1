"""What settings can name: agents, domains, families of made-up tasks, rewards.

A registry knows the module that fills it, and imports it when somebody first looks. So a folder that stands low can
check a name, or read a spec, without importing what stands above it. Nowhere else is a folder named by a string.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from importlib import import_module
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from recollect.domains.domain import Domain
    from recollect.domains.families import Family

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


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


@dataclass(frozen=True)
class AgentSpec:
    """A loop, and what the rest of the program has to know about it."""

    name: str
    loop: Callable[..., Any]  # async (task, session, cfg) → the answer
    roles: tuple[str, ...] = ("agent",)
    reads_document: bool = False  # a task without a document is refused
    many_questions: bool = False  # it answers all questions of a task, each in turn
    asks_first: bool = False  # its first prompt is the question, so data.max_prompt_length is its limit
    uses_tools: bool = False  # it takes agent.tools
    needs_tools: bool = False  # it cannot work without any
    calls: tuple[str, ...] = ()  # tools by name, of which its syntax needs one


class Agents(Registry[AgentSpec]):
    """The agents, and questions about them."""

    def knows(self, name: str, fact: str) -> bool:
        """Whether a fact holds for an agent; of one that is the user's own nothing is known."""
        return name in self and bool(getattr(self[name], fact))

    def those(self, fact: str) -> list[str]:
        """The agents for which a fact holds."""
        return [name for name in self if self.knows(name, fact)]


AGENTS = Agents("recollect.agents.loops")
DOMAINS: Registry[Domain] = Registry("recollect.domains.registry")
FAMILIES: Registry[Family] = Registry("recollect.domains.families")
REWARDS: Registry[Callable[..., Any]] = Registry("recollect.rewards")


def agent(name: str | None = None, **facts: Any) -> Callable[[F], F]:
    """Add a loop by name, with its facts: ``@agent(roles=("memory", "qa"), reads_document=True)``."""

    def add(loop: F) -> F:
        spec = AgentSpec(name or loop.__name__, loop, **facts)
        loop.__agent__ = spec  # type: ignore[attr-defined]
        if loop.__module__.startswith("recollect."):
            AGENTS[spec.name] = spec
        return loop

    return add
