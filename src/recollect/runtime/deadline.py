"""A deadline that the code under it can read, so that a reward can stop a program and still give its verdict."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

_until: ContextVar[float | None] = ContextVar("until", default=None)
MARGIN = 0.1  # the share of the time left that is kept for the verdict
LONGEST_MARGIN_S = 2.0


@asynccontextmanager
async def within(seconds: float | None) -> AsyncIterator[asyncio.Timeout]:
    """``asyncio.timeout`` whose deadline the code inside can read."""
    loop, outer = asyncio.get_running_loop(), _until.get()
    mine = None if seconds is None else loop.time() + seconds
    ends = [end for end in (mine, outer) if end is not None]
    token = _until.set(min(ends, default=None))
    try:
        async with asyncio.timeout(seconds) as timeout:
            yield timeout
    finally:
        _until.reset(token)


def seconds_left() -> float | None:
    """Seconds that work may take and still leave time for a verdict; None without a deadline."""
    until = _until.get()
    if until is None:
        return None
    left = until - asyncio.get_running_loop().time()
    return max(0.0, left - min(MARGIN * left, LONGEST_MARGIN_S))
