"""An event loop that knows how long it had nothing to do."""

from __future__ import annotations

import asyncio
import selectors
import threading
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


class TimedRuns:
    """`run_timed` again and again, in one thread, until another thread cancels it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None
        self.cancelled = False

    def run(self, work: Coroutine[Any, Any, T]) -> tuple[T, float]:
        """What `run_timed` does; asyncio.CancelledError once it was cancelled."""
        return run_timed(self._watched(work))

    def cancel(self) -> None:
        """Cancel what is under way, and let nothing more begin."""
        with self._lock:
            self.cancelled = True
            if self._under_way is not None:
                loop, task = self._under_way
                loop.call_soon_threadsafe(task.cancel)

    async def _watched(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.current_task()
        assert task is not None
        with self._lock:
            self._under_way = asyncio.get_running_loop(), task
            if self.cancelled:
                work.close()
                raise asyncio.CancelledError
        try:
            return await work
        finally:
            with self._lock:
                self._under_way = None
