"""Who may use the weights: many sample at once, but who changes them is alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Gate:
    """A lock that many share and one can have alone; whoever waits to be alone goes before those who come later."""

    def __init__(self) -> None:
        self._door = asyncio.Lock()
        self._empty = asyncio.Event()
        self._inside = 0

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Sample beside others."""
        async with self._door:
            self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1
            self._empty.set()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Change the weights once nobody samples any more; new requests wait."""
        async with self._door:
            while self._inside:
                self._empty.clear()
                await self._empty.wait()
            yield
