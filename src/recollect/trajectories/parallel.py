"""Pieces worked on by several processes, results in order, with a bound on what is under way."""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from typing import TypeVar

Unit = TypeVar("Unit")
Result = TypeVar("Result")


def workers_for(size: int) -> int:
    """Processes for so many bytes: none of their own for little."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 0 if size < 8 << 20 or cores < 2 else min(cores, 8)


def in_order(function: Callable[[Unit], Result], units: Iterable[Unit], workers: int) -> Iterator[Result]:
    """``function`` of every unit, in their order; at most three units for each process are under way."""
    if workers == 0:
        yield from map(function, units)
        return
    waiting: deque[Future[Result]] = deque()
    with ProcessPoolExecutor(workers, multiprocessing.get_context("fork")) as pool:
        for unit in units:
            waiting.append(pool.submit(function, unit))
            if len(waiting) >= 3 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
