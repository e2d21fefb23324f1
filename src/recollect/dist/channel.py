"""Messages over a socket between two processes: their length, then their bytes."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

from recollect.dist.message_bytes import decode, encode
from recollect.runtime.error_text import error_text

_LENGTH = struct.Struct("<Q")
PIECE = 1 << 20  # bytes that are read or written at a time
MOST = 1 << 36  # bytes of a message
IDLE_S, EVERY_S, TIMES = 10, 5, 4  # a machine that does not answer for IDLE_S + EVERY_S × TIMES seconds is gone


class Closed(Exception):
    """The other side is gone."""


class Stuck(Closed):
    """The other side neither takes nor gives any bytes."""


class Garbled(Closed):
    """What came is no message."""


class Channel:
    """One end of a connection. Several threads may send, one at a time receives."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self._sending = threading.Lock()

    def limit(self, seconds: float) -> None:
        """Let no message stand still for longer: `Stuck` is raised then."""
        self.socket.settimeout(seconds)

    def send(self, value: Any) -> None:
        """Send a value."""
        data = encode(value)
        with self._sending:
            for part in (_LENGTH.pack(len(data)), memoryview(data)):
                while part:
                    part = part[self._moved(self.socket.send, part[:PIECE]) :]

    def receive(self) -> Any:
        """The next value, waited for."""
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        if length > MOST:
            raise Garbled(f"a message of {length} bytes")
        data = self._exactly(length)
        try:
            return decode(data)
        except (ValueError, TypeError, LookupError, AttributeError, ImportError, struct.error, RecursionError) as error:
            raise Garbled(error_text(error)) from None

    def _exactly(self, count: int) -> bytearray:
        data, filled = bytearray(count), 0
        view = memoryview(data)
        while filled < count:
            got = self._moved(self.socket.recv_into, view[filled : filled + PIECE])
            if not got:
                raise Closed
            filled += got
        return data

    def _moved(self, move: Callable[[Any], int], part: Any) -> int:
        """Bytes that were moved; at least one unless the other side is gone."""
        try:
            return move(part)
        except TimeoutError:
            raise Stuck(f"it has taken or given nothing for {self.socket.gettimeout():g} s") from None
        except OSError as error:
            raise Closed from error

    def close(self) -> None:
        """End the connection."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.socket.close()


def watched(end: socket.socket) -> socket.socket:
    """A connection to another machine that breaks when that one is switched off, with nobody left to close it."""
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    limits = {"TCP_KEEPIDLE": IDLE_S, "TCP_KEEPINTVL": EVERY_S, "TCP_KEEPCNT": TIMES}
    limits["TCP_USER_TIMEOUT"] = 1000 * (IDLE_S + EVERY_S * TIMES)  # for what was sent and not received
    for name, value in limits.items():
        if hasattr(socket, name):
            end.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return end
