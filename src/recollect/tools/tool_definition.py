"""The carriers between an agent and its tools, and the decorator that makes a tool of a function or a class."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, overload

from recollect.config import Config
from recollect.sandbox.sandbox_session import SandboxSession
from recollect.tools.agentfly import translated
from recollect.tools.signature import Signature, read_signature
from recollect.types import ToolResult

Scope = Literal["trajectory", "global"]
TIMEOUT_S = 30.0
MAX_LENGTH = 8000


def stop(text: str, reward: float | None = None) -> ToolResult:
    """A result that ends the episode."""
    return ToolResult(text, stop=True, reward=reward)


@dataclass(frozen=True)
class Maker:
    """A tool that is made from the settings of a run."""

    make: Callable[..., Any]  # from the Config to a tool or a plain function

    sandboxed = False

    def __call__(self, cfg: Config) -> Any:
        """The tool of a run with these settings."""
        return self.make(cfg)


@dataclass(frozen=True)
class Tool:
    """A function or class that the model may call by name."""

    name: str
    run: Callable[..., Any]  # the function, or the class whose instances are called
    signature: Signature
    timeout: float | None = TIMEOUT_S  # seconds of one call; None: the tool bounds itself
    max_length: int = MAX_LENGTH  # characters of an observation
    scope: Scope = "trajectory"  # of a class: an instance for each trajectory, or one for all
    pool: int | None = None  # most instances of a class, or most calls of a function, at once; None: no bound
    ends: bool = False  # whatever it answers ends the episode and is the answer

    @property
    def stateful(self) -> bool:
        """True when calls go to an instance."""
        return inspect.isclass(self.run)

    @property
    def sandboxed(self) -> bool:
        """True when it is given a session of the sandbox, in which what the model writes runs."""
        return SandboxSession in self.signature.given.values()

    @property
    def description(self) -> str:
        """What the model is told about it."""
        return self.signature.description

    @property
    def schema(self) -> dict[str, Any]:
        """The function schema of OpenAI's format."""
        about = {"name": self.name, "description": self.description, "parameters": self.signature.parameters}
        return {"type": "function", "function": about}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function itself (or an instance), so that a decorated function can still be used as one."""
        return self.run(*args, **kwargs)


@overload
def tool(run: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = TIMEOUT_S,
    max_length: int = MAX_LENGTH,
    scope: Scope = "trajectory",
    pool: int | None = None,
    ends: bool = False,
    **theirs: Any,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    run: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Any,
) -> Any:
    """Make a tool of a function (plain or async) or of a class with ``__call__``; see docs/tools.md."""
    mine = translated(options)

    def make(run: Callable[..., Any]) -> Tool:
        if mine.get("scope", "trajectory") not in ("trajectory", "global"):
            raise ValueError(f"scope={mine['scope']} is unknown; known: trajectory, global")
        if mine.get("pool") is not None and mine["pool"] < 1:
            raise ValueError(f"pool={mine['pool']} must be at least 1")
        signature = read_signature(run)
        about = signature if description is None else replace(signature, description=description)
        return Tool(name or run.__name__, run, about, **mine)

    return make if run is None else make(run)


def renamed(tool: Tool, name: str) -> Tool:
    """The same tool by another name."""
    return replace(tool, name=name)
