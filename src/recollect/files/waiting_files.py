"""Open files that may never answer: pipes without a writer, and files of the kernel whose reading waits for events."""

from __future__ import annotations

import io
import os
import stat
import time
from pathlib import Path
from typing import Any, BinaryIO

from recollect.types import BadInput

WRITER_S = 10.0  # how long a pipe is waited for that nobody writes to
LOOK_S = 0.02
FIRST = 1 << 16  # bytes of a first look


class StartedPipe(io.RawIOBase):
    """A pipe whose first bytes were read when its writer was waited for."""

    def __init__(self, handle: int, first: bytes) -> None:
        self.handle, self.first = handle, first

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self.first:
            return os.readv(self.handle, [buffer])
        count = min(len(buffer), len(self.first))
        buffer[:count], self.first = self.first[:count], self.first[count:]
        return count

    def close(self) -> None:
        if not self.closed:
            os.close(self.handle)
        super().close()


def opened_without_waiting(path: Path) -> BinaryIO:
    """A file or a pipe, opened to read bytes; BadInput for one that would be waited for without end."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        about = os.fstat(handle)
        if stat.S_ISFIFO(about.st_mode):
            first = _first_bytes(handle, path)
            os.set_blocking(handle, True)
            return io.BufferedReader(StartedPipe(handle, first))
        if not stat.S_ISREG(about.st_mode) or (about.st_size == 0 and _has_more(handle)):
            raise BadInput(f"{path} is no ordinary file or pipe, but one of the kernel; name a file")
        os.set_blocking(handle, True)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def _first_bytes(handle: int, path: Path) -> bytes:
    """What a pipe holds once somebody writes to it."""
    until = time.monotonic() + WRITER_S
    while time.monotonic() < until:
        try:
            if first := os.read(handle, FIRST):
                return first
        except BlockingIOError:  # there is a writer, who takes his time
            return b""
        time.sleep(LOOK_S)
    raise BadInput(f"{path} is a pipe that nobody has written to for {WRITER_S:g} s; start its writer first")


def _has_more(handle: int) -> bool:
    """True for a file that says it is empty and is not, or that would have to be waited for."""
    try:
        return bool(os.read(handle, 1))
    except BlockingIOError:
        return True
