"""A worker of ranks that computes nothing."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

from recollect.dist.place import RankPlace
from recollect.types import BadInput


class Worker:
    def __init__(self, place: RankPlace, settings: Any, passed: Any) -> None:
        self.place, self.passed = place, passed
        if settings == "refuse":
            raise BadInput("this cannot work")

    def about(self) -> str:
        return f"{self.place.rank} of {self.place.size}"

    def call(self, target: int, name: str, given: Any, made: int | None) -> Any:
        return getattr(self, name)(**given)

    def sum(self, numbers: list[int]) -> int:
        self.passed(1, 1)
        return sum(numbers)

    def items(self, count: int) -> Iterator[int]:
        yield from range(count)

    def fail(self, rank: int) -> None:
        if self.place.rank == rank:
            raise KeyError("no such thing")
        if rank < 0:
            raise BadInput("not so")

    def stop(self, rank: int) -> None:
        """Hang as a stopped process does."""
        if self.place.rank == rank:
            os.kill(os.getpid(), signal.SIGSTOP)

    def write(self, rank: int, data: str) -> None:
        """Write bytes to the driver that are no message."""
        if self.place.rank == rank:
            self.passed.__self__.channel.socket.sendall(data.encode("latin-1"))
            time.sleep(100)

    def sleep(self, rank: int) -> None:
        """Hang as a program does."""
        if self.place.rank == rank:
            time.sleep(100)
        self.passed(1, 1)
