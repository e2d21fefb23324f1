"""How many requests an optimisation may make, and whether anybody answers them."""

from __future__ import annotations

import threading
from collections.abc import Callable


class BudgetSpent(RuntimeError):
    """No further request is made."""


class CallBudget:
    """Counts requests to models; those that a cache answers are free."""

    def __init__(self, most: int, used: int = 0, on_request: Callable[[], None] = lambda: None) -> None:
        self.most, self.used, self.on_request = most, used, on_request
        self.cached = self.refused = 0
        self.lost = ""  # why nobody answers any more
        self._lock = threading.Lock()

    def take(self) -> None:
        """One more request; BudgetSpent where none is left."""
        with self._lock:
            if self.lost:
                raise BudgetSpent(self.lost)
            if self.used >= self.most:
                self.refused += 1
                raise BudgetSpent(f"the budget of {self.most} requests is spent")
            self.used += 1
            self.on_request()

    def lose(self, why: str) -> None:
        """Nobody answers any more: what follows would count as bad answers, so nothing is asked."""
        self.lost = self.lost or why

    def spare(self) -> None:
        """One request that a cache has answered."""
        with self._lock:
            self.cached += 1
