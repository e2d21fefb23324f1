"""The rewards by name, and ``@reward``, which adds one and says how it is to be called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar, overload

from recollect.registries import REWARDS

RewardLevel = Literal["trajectory", "group", "batch"]
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Marks:
    """How a reward is called."""

    level: RewardLevel = "trajectory"  # for each trajectory, once for a task's trajectories, or once for all of a step
    inline: bool = False  # quick and sure to end: called in the event loop and not in a thread
    gold: bool = False  # useless without an accepted answer, so data without one is refused
    check: Callable[..., None] | None = None  # given its options before a run, refuses values that cannot work


@overload
def reward(given: F) -> F: ...
@overload
def reward(
    given: str | None = None,
    *,
    name: str | None = None,
    auto_register: bool = True,
    level: RewardLevel | None = None,
    inline: bool = False,
    gold: bool = False,
    check: Callable[..., None] | None = None,
) -> Callable[[F], F]: ...
def reward(
    given: Any = None,
    *,
    name: str | None = None,
    auto_register: bool = True,
    level: RewardLevel | None = None,
    inline: bool = False,
    gold: bool = False,
    check: Callable[..., None] | None = None,
) -> Any:
    """Register a function as a reward, under its own name or the one given: ``@reward`` or ``@reward(name="…")``.

    It returns the function itself. Functions that are named as ``module:function`` need no decorator. A name of a
    reward that comes with recollect stays that reward's.
    """

    def register(function: F) -> F:
        function.__reward__ = Marks(level or _level_of(function), inline, gold, check)  # type: ignore[attr-defined]
        known_as = name or (given if isinstance(given, str) else None) or _name_of(function)
        taken = known_as in REWARDS and is_ours(REWARDS[known_as]) and not is_ours(function)
        if auto_register and not taken:
            REWARDS[known_as] = function
        return function

    return register(given) if callable(given) else register


def is_ours(function: Callable[..., Any]) -> bool:
    """True for a reward that comes with recollect."""
    return str(getattr(function, "__module__", "")).startswith("recollect.")


def _name_of(function: Callable[..., Any]) -> str:
    """A function's name; for a partial that of its function, for any other object that of its class."""
    inner = function.func if isinstance(function, partial) else function
    return str(getattr(inner, "__name__", type(inner).__name__))


def marks_of(function: Callable[..., Any]) -> Marks:
    """How a function is called: as it was marked, or as its parameters say."""
    marks = getattr(function, "__reward__", None)
    return marks if isinstance(marks, Marks) else Marks(_level_of(function))


def _level_of(function: Callable[..., Any]) -> RewardLevel:
    return "batch" if "trajectories" in inspect.signature(function).parameters else "trajectory"
