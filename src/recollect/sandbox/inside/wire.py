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
    message = json.loads(body)
    if not isinstance(message, dict):
        raise ValueError("a message is an object")
    return message
