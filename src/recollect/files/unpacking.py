"""Stream compressed files: lines are bounded, and a cut or damaged file is an error that says so."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import zstandard

from recollect.files.reading import MB, bounded
from recollect.types import BadInput

WINDOW = 128 * MB  # the most that unpacking may hold at once; a file that asks for more is refused
PACKED = 1 << 8  # bytes unpacked at a time: a block of 4 bytes may stand for 128 kB
FREE = 16 * MB  # unpacked bytes of any file; beyond them …
MOST_GROWTH = 2000  # … so many for each that is read: far more than text, far less than a bomb


class Bomb(ValueError):
    """A file that unpacks to more than any data does."""


DAMAGED = (zstandard.ZstdError, EOFError, gzip.BadGzipFile, zlib.error, Bomb)


class Frames(io.RawIOBase):
    """The bytes of a zstd file of one or more frames. A file that ends inside a frame raises EOFError."""

    def __init__(self, raw: BinaryIO) -> None:
        self.raw, self.left = raw, memoryview(b"")
        self.packed = self.unpacked = 0  # bytes so far
        self.frame: Any = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.left:
            packed = self.raw.read(PACKED)
            if not packed:
                if self.frame is not None:
                    raise EOFError("it ends in the middle")
                return 0
            self.left = memoryview(self._unpacked(packed))
            self.packed, self.unpacked = self.packed + len(packed), self.unpacked + len(self.left)
            if self.unpacked > FREE + MOST_GROWTH * self.packed:
                raise Bomb(f"it unpacks to more than {MOST_GROWTH:,} times its size")
        count = min(len(buffer), len(self.left))
        buffer[:count], self.left = self.left[:count], self.left[count:]
        return count

    def _unpacked(self, packed: bytes) -> bytes:
        found = []
        while packed:
            if self.frame is None:
                self.frame = zstandard.ZstdDecompressor(max_window_size=WINDOW).decompressobj()
            found.append(self.frame.decompress(packed))
            packed = self.frame.unused_data if self.frame.eof else b""
            if self.frame.eof:
                self.frame = None
        return b"".join(found)


def unpacked(raw: BinaryIO, name: str) -> BinaryIO:
    """What a .zst or a .gz file holds; reading raises one of ``DAMAGED``."""
    stream: Any = Frames(raw) if name.endswith(".zst") else gzip.GzipFile(fileobj=raw)
    return io.BufferedReader(stream, MB)


def unpacked_lines(raw: BinaryIO, path: Path) -> Iterator[bytes]:
    """The lines of a compressed file."""
    try:
        yield from bounded(unpacked(raw, path.name), str(path))
    except DAMAGED as error:
        raise BadInput(f"{path} is damaged: {error}") from None
