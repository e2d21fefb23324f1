"""Messages over a socket between two processes: their length, then their bytes."""

from __future__ import annotations

import socket
import struct
import threading
from typing import Any

from recollect.dist.message_bytes import decode, encode

_LENGTH = struct.Struct("<Q")
PIECE = 1 << 20  # bytes that are read at a time
IDLE_S, EVERY_S, TIMES = 10, 5, 4  # a machine that does not answer for IDLE_S + EVERY_S × TIMES seconds is gone


class Closed(Exception):
    """The other side is gone."""


class Channel:
    """One end of a connection. Several threads may send, one at a time receives."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self._sending = threading.Lock()

    def send(self, value: Any) -> None:
        """Send a value."""
        data = encode(value)
        try:
            with self._sending:
                self.socket.sendall(_LENGTH.pack(len(data)))
                self.socket.sendall(data)
        except OSError as error:
            raise Closed from error

    def receive(self) -> Any:
        """The next value, waited for."""
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        return decode(self._exactly(length))

    def _exactly(self, count: int) -> bytearray:
        data, filled = bytearray(count), 0
        view = memoryview(data)
        while filled < count:
            try:
                got = self.socket.recv_into(view[filled : filled + PIECE])
            except OSError as error:
                raise Closed from error
            if not got:
                raise Closed
            filled += got
        return data

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
