"""What becomes of a key of another system."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Given = Mapping[str, Any]  # all settings of the same command or file


@dataclass(frozen=True)
class Alias:
    """Another name for keys of ours; its value may have to be put in other words."""

    to: str  # the key that is set, or the main one of several
    why: str = ""  # what else there is to say about it
    words: Mapping[Any, Any] = field(default_factory=dict)  # their value → ours; None: it says nothing
    expand: Callable[[Any, Given], Mapping[str, Any]] | None = None  # where one value sets several keys, or none
    agents: tuple[str, ...] = ()  # the agents that read it; with another one a value is refused
    least: bool = False  # of several such keys the smallest value counts


@dataclass(frozen=True)
class Refused:
    """Nothing here can do it. The other systems' defaults, which ask for nothing, are taken all the same."""

    why: str
    fine: tuple[Any, ...] = ()  # further values that ask for what happens here anyway
    when: Callable[[str, Any, Given], bool] | None = None  # or a rule over key and value that tells them


@dataclass(frozen=True)
class Same:
    """No value of it changes a result here."""

    why: str


Answer = Alias | Refused | Same
