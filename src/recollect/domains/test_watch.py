"""The tests of a repository with a watch over their assertions, as files for a sandbox."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from recollect.domains.watch_state import EVENTS, FOUND, LOOK, SPOIL, WATCH
from recollect.domains.watched_tests import watched
from recollect.rewards.joined_source import joined

__all__ = ["EVENTS", "FOUND", "LOOK", "SPOIL", "WATCH", "TestWatch"]
PARTS = (
    "rewards.decoys",
    *(f"domains.{name}" for name in ("wrong_operands", "failing_assertions", "kept_machinery", "watch_state")),
    *(f"domains.{name}" for name in ("watched_comparisons", "assertion_watch")),
)


@dataclass(frozen=True)
class TestWatch:
    """A watch that has a name of its own, so that no repair knows it."""

    name: str
    tests: Mapping[str, str]
    exempt: tuple[str, ...] = ()

    @classmethod
    def over(cls, tests: Mapping[str, str]) -> TestWatch | None:
        """A watch over tests; None where no Python test is."""
        name = f"w{secrets.token_hex(6)}"
        made = watched(tests, name)
        return cls(name, made) if made else None

    @property
    def folder(self) -> str:
        """Where the watch itself is."""
        return f".{self.name}"

    def without(self, found: str) -> TestWatch:
        """The same, less the places that a look has found, one on each line."""
        return replace(self, exempt=tuple(sorted(set(found.splitlines()))))

    def files(self, mode: str) -> dict[str, str]:
        """The tests, the watch, and what loads it before anything else."""
        start = f"{_source()}\nsetup({mode!r}, {list(self.exempt)!r})\n"
        own = {f"{self.name}.py": start, "sitecustomize.py": f"import {self.name}\n"}
        return {**self.tests, **{f"{self.folder}/{path}": text for path, text in own.items()}}


@cache
def _source() -> str:
    return joined([f"recollect.{part}" for part in PARTS])
