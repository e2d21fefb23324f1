"""The rewards by name, and ``@reward``, which adds one and says how it is to be called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, overload

Level = Literal["trajectory", "group", "batch"]
F = TypeVar("F", bound=Callable[..., Any])

REWARDS: dict[str, Callable[..., Any]] = {}


@dataclass(frozen=True)
class Marks:
    """How a reward is called."""

    level: Level = "trajectory"  # for each trajectory, once for a task's trajectories, or once for all of a step
    inline: bool = False  # quick and sure to end: called in the event loop and not in a thread
    gold: bool = False  # useless without an accepted answer, so data without one is refused
    check: Callable[..., None] | None = None  # given its options before a run, refuses values that cannot work


@overload
def reward(given: F) -> F: ...
@overload
def reward(
    given: str | None = None,
    *,
    level: Level | None = None,
    inline: bool = False,
    gold: bool = False,
    check: Callable[..., None] | None = None,
) -> Callable[[F], F]: ...
def reward(
    given: Any = None,
    *,
    level: Level | None = None,
    inline: bool = False,
    gold: bool = False,
    check: Callable[..., None] | None = None,
) -> Any:
    """Register a function as a reward, under its own name or the one given: ``@reward`` or ``@reward("name")``.

    It returns the function itself. Functions that are named as ``module:function`` need no decorator.
    """

    def register(function: F) -> F:
        name = given if isinstance(given, str) else function.__name__
        there = REWARDS.get(name)
        if there is not None and there.__module__.startswith("recollect.") and there.__module__ != function.__module__:
            raise ValueError(f"a reward that comes with recollect is called {name} already; give yours another name")
        function.__reward__ = Marks(level or _level_of(function), inline, gold, check)  # type: ignore[attr-defined]
        REWARDS[name] = function
        return function

    return register(given) if callable(given) else register


def marks_of(function: Callable[..., Any]) -> Marks:
    """How a function is called: as it was marked, or as its parameters say."""
    marks = getattr(function, "__reward__", None)
    return marks if isinstance(marks, Marks) else Marks(_level_of(function))


def _level_of(function: Callable[..., Any]) -> Level:
    return "batch" if "trajectories" in inspect.signature(function).parameters else "trajectory"
