"""What becomes of a key of another system."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Given = Mapping[str, Any]  # all settings of the same command or file


@dataclass(frozen=True)
class Alias:
    """Another name for our keys; its value may be translated too."""

    to: str  # the key that is set, or the main one of several
    why: str = ""  # what else there is to say about it
    words: Mapping[Any, Any] = field(default_factory=dict)  # their value → ours; None: it says nothing
    expand: Callable[[Any, Given], Mapping[str, Any]] | None = None  # where one value sets several keys, or none
    fact: str = ""  # the fact of `AgentSpec` about agents that read it; with another agent a value is refused
    least: bool = False  # of several such keys the smallest value counts


@dataclass(frozen=True)
class Refused:
    """Not supported here. The other system's default, which asks for nothing, is accepted."""

    why: str
    fine: tuple[Any, ...] = ()  # further values that ask for what happens here anyway
    when: Callable[[str, Any, Given], bool] | None = None  # or a rule over key and value that tells them


@dataclass(frozen=True)
class Same:
    """No value of it changes a result here."""

    why: str


Answer = Alias | Refused | Same
