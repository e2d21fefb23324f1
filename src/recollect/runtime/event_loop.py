"""An event loop that knows how long it had nothing to do."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class TimedSelector(selectors.DefaultSelector):
    """Adds up the seconds in which the loop waits for something outside."""

    waited = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait as the selector does."""
        if timeout is not None and timeout <= 0:
            return super().select(timeout)
        start = time.perf_counter()
        try:
            return super().select(timeout)
        finally:
            self.waited += time.perf_counter() - start


def run_timed(work: Coroutine[Any, Any, T]) -> tuple[T, float]:
    """`asyncio.run`, and the seconds in which nothing in the loop could go on."""
    selector = TimedSelector()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        return runner.run(work), selector.waited
