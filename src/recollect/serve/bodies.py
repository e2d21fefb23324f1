"""Bodies of requests: read within a time and a size, all large ones together within a budget, and only then parsed."""

from __future__ import annotations

import asyncio
import ctypes
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from starlette.requests import Request

from recollect.files.half_characters import WHAT as HALF
from recollect.files.half_characters import has_half, says_half
from recollect.serve.limits import BODY_S, DEPTH, SHARES, SMALL
from recollect.serve.protocol import BadRequest, clipped

TRIM_S = 1.0  # after a large body


class Body:
    """The body of one request while it is held."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.whole = self.dropped = self.large = False
        self.deadline = asyncio.timeout(BODY_S)

    @property
    def counted(self) -> int:
        """Bytes that count against the budget."""
        return len(self.data) if len(self.data) > SMALL else 0

    def drop(self) -> None:
        """Give up an unfinished body; its reader gets an error."""
        self.dropped, self.data = True, bytearray()
        self.deadline.reschedule(asyncio.get_running_loop().time())


class Bodies:
    """All bodies that are being read or worked on."""

    def __init__(self, largest: int) -> None:
        self.largest, self.budget = largest, SHARES * largest
        self.held: dict[Body, None] = {}
        self.trimming = False
        self.turn = asyncio.Lock()

    @asynccontextmanager
    async def taken(self, request: Request) -> AsyncIterator[bytearray]:
        """The body of a request; its bytes count while this is open."""
        body = Body()
        self.held[body] = None
        try:
            await self._read(request, body)
            yield body.data
        finally:
            del self.held[body]
            if body.large and not self.trimming:
                self.trimming = True
                asyncio.get_running_loop().call_later(TRIM_S, self._trim)

    def _trim(self) -> None:
        """Give the memory of large bodies back to the system."""
        self.trimming = False
        threading.Thread(target=trim, daemon=True).start()

    async def _read(self, request: Request, body: Body) -> None:
        declared = request.headers.get("content-length", "0")
        try:
            async with body.deadline:
                self._check(int(declared) if declared.isdecimal() else 0)
                async for part in request.stream():
                    body.data += part
                    body.large = body.large or len(body.data) > SMALL
                    self._check(len(body.data))
                    self._make_room(body)
                    if body.large:
                        async with self.turn:  # one part of one large body between two looks at everybody else
                            await asyncio.sleep(0)
        except TimeoutError:
            if body.dropped:
                raise BadRequest("too many large requests are on their way; come back later", status=503) from None
            raise BadRequest(f"the body did not come within {BODY_S:g} s", status=408) from None
        body.whole = True

    def _check(self, size: int) -> None:
        if size > self.largest:
            raise BadRequest(f"a request may have {self.largest} bytes", status=413)

    def _make_room(self, newest: Body) -> None:
        """Beyond the budget, the largest of the unfinished bodies are given up."""
        if not newest.counted:
            return
        over = sum(body.counted for body in self.held) - self.budget
        unfinished = sorted((b for b in self.held if b.counted and not b.whole), key=lambda b: -b.counted)
        for body in unfinished:
            if over <= 0:
                return
            over -= body.counted
            body.drop()


def trim() -> None:
    """Give memory that is free back to the system, where the C library can."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def parsed(data: bytearray, marks: int) -> dict[str, Any]:
    """The JSON object of a body, which may hold so many brackets and colons."""
    if max(data.count(b"[") + data.count(b"{"), data.count(b":")) > marks:
        raise BadRequest(f"the body holds more than {marks} lists, objects or names")
    try:
        text = data.decode("utf-8-sig")
        body = json.loads(text)
    except (ValueError, RecursionError):
        raise BadRequest("the body is not JSON, or nested too deeply") from None
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object")
    if _depth(body) > DEPTH:
        raise BadRequest(f"the body is nested too deeply: more than {DEPTH} levels")
    if says_half(text, body):
        key = next(key for key in body if has_half({key: body[key]}))
        raise BadRequest(f"the body holds {HALF} in {clipped(key)}", clipped(key))
    return body


def _depth(value: Any) -> int:
    """How deeply lists and objects are nested; counting stops once that is too deep."""
    depth, level = 0, [value]
    while level and depth <= DEPTH:
        depth += 1
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
    return depth
