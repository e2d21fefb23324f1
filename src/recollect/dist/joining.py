"""How a rank on another node joins its driver: it comes to the driver's door with a token that was made for it alone."""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import struct
import time
from collections.abc import Callable, Mapping

from recollect.dist.channel import Channel, watched

TOKEN = "RECOLLECT_RANK_TOKEN"  # in the environment of a rank, which others cannot read
LETTERS = 32  # of a token
HELLO = struct.Struct(f"<{LETTERS}sH")  # the token, and the port at which the rank itself may be met
HELLO_S = 5.0  # for somebody at the door to show the token
LOOK_S = 0.5


class Door:
    """Where ranks come in. It listens on one address alone, and shuts when all are there."""

    def __init__(self, address: str) -> None:
        self.socket = socket.create_server((address, 0), backlog=64)
        self.at = "{}:{}".format(*self.socket.getsockname()[:2])
        self.tokens: dict[str, int] = {}  # of ranks that have not come yet

    def token(self, rank: int) -> str:
        """A token that lets one rank in, once."""
        token = secrets.token_hex(LETTERS // 2)
        self.tokens[token] = rank
        return token

    def admit(self, wait_s: float, look: Callable[[], None]) -> dict[int, tuple[Channel, int]]:
        """The connection of every rank, and where it may be met. ``look`` raises if one cannot come any more."""
        found: dict[int, tuple[Channel, int]] = {}
        until = time.monotonic() + wait_s
        self.socket.settimeout(LOOK_S)
        while self.tokens:
            if time.monotonic() > until:
                raise TimeoutError(f"rank {min(self.tokens.values())} has not joined within {wait_s:g} s")
            try:
                end, _ = self.socket.accept()
            except TimeoutError:
                look()
                continue
            if (came := self._hello(end)) is not None:
                found[came[0]] = Channel(watched(end)), came[1]
        return found

    def _hello(self, end: socket.socket) -> tuple[int, int] | None:
        """The rank that shows its token, and its port; others are sent away."""
        try:
            end.settimeout(HELLO_S)
            shown, port = HELLO.unpack(_exactly(end, HELLO.size))
            token = next((t for t in self.tokens if hmac.compare_digest(t.encode(), shown)), "")
            if token:
                end.settimeout(None)
                return self.tokens.pop(token), port
        except OSError:
            pass
        end.close()
        return None

    def close(self) -> None:
        """Let nobody in any more."""
        self.socket.close()


def knock(at: str, environment: Mapping[str, str], port: int) -> socket.socket:
    """Join the driver at its door; the token is in the environment."""
    host, _, number = at.rpartition(":")
    end = watched(socket.create_connection((host, int(number)), HELLO_S))
    end.settimeout(None)
    end.sendall(HELLO.pack(environment[TOKEN].encode(), port))
    return end


def forget_token() -> None:
    """Take the token out of this process's environment, for whoever it starts."""
    os.environ.pop(TOKEN, None)


def _exactly(end: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        if not (got := end.recv(count - len(data))):
            raise ConnectionResetError
        data += got
    return data
