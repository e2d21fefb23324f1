"""Answers of outside servers, read up to a limit."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from recollect.chat.schemas import loads
from recollect.runtime.secrets import redacted, without_keys

LARGEST = 16 << 20  # bytes of an answer
HEADERS = {"Accept-Encoding": "gzip"}
SHOWN = 300  # characters of a server's reason


class TooLarge(RuntimeError):
    """An answer that is longer than anything that was asked for."""


@dataclass(frozen=True)
class Reply:
    """An answer: its text holds none of our keys, whatever the server echoes."""

    status: int
    headers: Mapping[str, str]
    text: str

    def json(self) -> Any:
        """Its value; everything that can be wrong with it is a ValueError."""
        return loads(self.text)

    def reason(self) -> str:
        """Why the server refused, in one line."""
        try:
            found = self.json()
            inner = found.get("error")
            text = inner["message"] if isinstance(inner, dict) else found.get("message", self.text)
        except (ValueError, KeyError, TypeError, AttributeError):
            text = self.text
        return " ".join(redacted(str(text)[: 10 * SHOWN]).split())[:SHOWN]


async def fetch(client: Any, method: str, url: str, body: Any = None, largest: int = LARGEST) -> Reply:
    """Call a server with an httpx client."""
    async with client.stream(method, url, **_sent(body)) as answer:
        unpack = _unpacking(answer.headers.get("content-encoding", "").strip().lower())
        data = bytearray()
        async for part in answer.aiter_raw():
            data += unpack(part, largest + 1 - len(data))
            if len(data) > largest:
                raise TooLarge(f"its answer is larger than {largest >> 20} MiB")
        return Reply(answer.status_code, answer.headers, without_keys(data.decode("utf-8", "replace")))


def _sent(body: Any) -> dict[str, Any]:
    """A body as JSON, with question marks for half characters, which texts of tools and files may hold."""
    if body is None:
        return {"headers": HEADERS}
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return {"content": text.encode("utf-8", "replace"), "headers": {**HEADERS, "Content-Type": "application/json"}}


def _unpacking(coding: str) -> Callable[[bytes, int], bytes]:
    """A function that decompresses a part of an answer into at most so many bytes."""
    if coding in ("", "identity"):
        return lambda part, most: part
    if coding not in ("gzip", "x-gzip"):
        raise httpx.DecodingError(f"its answer is coded as {coding[:20]!r}, which was not asked for")
    packed = zlib.decompressobj(wbits=31)

    def unpack(part: bytes, most: int) -> bytes:
        try:
            return packed.decompress(part, most)
        except zlib.error as error:
            raise httpx.DecodingError(str(error)) from None

    return unpack
