"""Messages over a socket between two processes of this machine: their length, then their bytes."""

from __future__ import annotations

import socket
import struct
import threading
from typing import Any

from recollect.dist.message_bytes import decode, encode

_LENGTH = struct.Struct("<Q")
PIECE = 1 << 20  # bytes that are read at a time


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
