"""What clients may ask for and hold, and how long they may take."""

from __future__ import annotations

from dataclasses import dataclass

HEAD_S = 10.0  # to say what is asked for; also how long a connection may be silent
BODY_S = 30.0  # to send a request's body
LINGER_S = 5.0  # to take the last of an answer, or to stop sending what was refused
STALL_S = 60.0  # without reading, while there is more to send
SMALL = 64 << 10  # bytes of a body that nobody counts
DEPTH = 64  # lists and objects of a body inside one another
SHARES = 4  # larger bodies may together have so many times the bytes of the largest


@dataclass(frozen=True)
class ServeLimits:
    """What a client may ask for."""

    max_tokens: int = 4096  # of one completion
    max_body: int = 8 << 20  # bytes of a request
    concurrency: int = 256  # completions under way; further ones are told to come back
    connections: int = 1024  # open at once; beyond, those that wait for their request are closed, the oldest first

    @property
    def requests(self) -> int:
        """Requests under way at most; a few connections stay free for health checks."""
        return max(1, self.connections * 3 // 4)


@dataclass(frozen=True)
class Bounds:
    """What one request may hold, so that it can be refused before it costs anything."""

    max_tokens: int  # of one completion
    completions: int  # of one request
    window: int  # tokens of a prompt
    vocabulary: int  # ids of a prompt are below

    @property
    def marks(self) -> int:
        """Brackets and colons of a body, which take time and memory to read."""
        return max(1 << 18, 8 * self.window)
