"""Which server a request goes to: an attempt keeps its server, and attempts at one task share one with free rows.

The prefix cache of a server then holds what an attempt's next turn begins with, and what all attempts at a task share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

MOST = 100_000  # attempts and tasks that are remembered

T = TypeVar("T")


class Balance(Generic[T]):
    """Remembers where attempts are; ``load`` counts what a server has under way, ``rows`` what it decodes at once."""

    def __init__(self, load: Callable[[T], int], rows: int) -> None:
        self.load, self.rows = load, rows
        self.attempts: dict[str, T] = {}
        self.tasks: dict[str, T] = {}

    def choose(self, key: str, servers: Sequence[T]) -> T:
        """The server, of those that are there, for the request with this key (`…/task/attempt/turn`)."""
        attempt = key.rpartition("/")[0]
        task = attempt.rpartition("/")[0]
        kept = self.attempts.get(attempt)
        if kept is not None and kept in servers:
            return kept
        home = self.tasks.get(task)
        if home is None or home not in servers or self.load(home) >= self.rows:
            home = min(servers, key=self.load)
            if self.tasks.get(task) not in servers:
                self.tasks[task] = home
        self.attempts[attempt] = home
        if len(self.attempts) > MOST:
            self.forget()
        return home

    def forget(self) -> None:
        """Begin anew, as with new weights: nothing is cached any more."""
        self.attempts.clear()
        self.tasks.clear()
