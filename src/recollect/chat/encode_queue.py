"""Texts that many agents want to have tokenised at the same moment, in one call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

HOPS = 3  # rounds of the event loop until an agent that may go on has asked again: its text is tokenised in between


class EncodeQueue:
    """Collects the texts of one round of the event loop and tokenises them in the next."""

    def __init__(self, encode_all: Callable[[Sequence[str]], list[list[int]]]) -> None:
        self.encode_all = encode_all
        self._asked: list[tuple[str, asyncio.Future[list[int]]]] = []

    async def ids(self, text: str) -> list[int]:
        """The ids of a text."""
        loop = asyncio.get_running_loop()
        if not self._asked or self._asked[0][1].get_loop() is not loop:  # those of a loop that has ended are gone
            self._asked = []
            loop.call_soon(self._encode)
        future: asyncio.Future[list[int]] = loop.create_future()
        self._asked.append((text, future))
        return await future

    def _encode(self) -> None:
        asked, self._asked = [(t, f) for t, f in self._asked if not f.done()], []
        try:
            made: list[list[int] | Exception] = [*self.encode_all([text for text, _ in asked])]
        except Exception:
            made = [self._alone(text) for text, _ in asked]  # what cannot be tokenised fails by itself
        for (_, future), ids in zip(asked, made, strict=True):
            if isinstance(ids, Exception):
                future.set_exception(ids)
            else:
                future.set_result(ids)

    def _alone(self, text: str) -> list[int] | Exception:
        try:
            return self.encode_all([text])[0]
        except Exception as error:
            return error
