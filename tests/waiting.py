"""Waiting for what has to come, and what work costs: neither depends on what else the machine does meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable

LONG = 60.0  # seconds that nobody waits for unless something is broken


def until(happened: Callable[[], object], seconds: float = LONG) -> bool:
    """Whether something comes true, looked at again and again; it returns as soon as it does."""
    end = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def cost(work: Callable[[], object], times: int = 3) -> float:
    """Processor seconds of this thread for some work, the least of several."""
    took = []
    for _ in range(times):
        start = time.thread_time()
        work()
        took.append(time.thread_time() - start)
    return min(took)
