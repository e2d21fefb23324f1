"""How the two sides talk: four bytes of length, then JSON. Nothing else ever comes out of a sandbox."""

from __future__ import annotations

import json
import struct
from typing import Any

HEAD = 4


def pack(message: dict[str, Any]) -> bytes:
    """A message as bytes."""
    body = json.dumps(message).encode()
    return struct.pack(">I", len(body)) + body


def size(head: bytes) -> int:
    """The length that the first four bytes announce."""
    return int(struct.unpack(">I", head)[0])


def unpack(body: bytes) -> dict[str, Any]:
    """The message that a body holds; ValueError when it is none."""
    try:
        message = json.loads(body)
    except RecursionError:
        raise ValueError("a message is nested too deeply") from None
    if not isinstance(message, dict):
        raise ValueError("a message is an object")
    return message


def text(message: dict[str, Any], name: str, most: int) -> str:
    """A text of a message, cut to a length and free of half characters; ValueError when it is something else."""
    value = message.get(name, "")
    if not isinstance(value, str):
        raise ValueError(f"{name} is not a text")
    return value[:most].encode("utf-8", "replace").decode()
