"""What a tracker is: something that is opened for a run, given rows of numbers, and closed."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True)
class About:
    """The run that a tracker shows."""

    folder: Path  # the tracker's own, inside the run directory
    project: str
    experiment: str
    config: dict[str, Any]  # the resolved configuration

    def remember(self, name: str, value: str = "") -> str:
        """A value that stays the same when the run is resumed: the one stored before, else this one."""
        path = self.folder / name
        if not path.is_file():
            path.write_text(value or uuid.uuid4().hex[:12])
        return path.read_text()

    def known(self, name: str) -> bool:
        """Whether a value is stored under this name."""
        return (self.folder / name).is_file()


class Tracker(Protocol):
    """One tracking library. It runs in a process of its own, so it may be slow, hang or fail."""

    def open(self, about: About) -> str:
        """Start or go on with the run; returns a line for the user, or nothing."""

    def log(self, step: int, row: Mapping[str, float]) -> None:
        """Show one row."""

    def close(self) -> None:
        """Write out everything."""


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted keys of a configuration."""
    out: dict[str, Any] = {}
    for key, value in tree.items():
        out |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return out
