"""Where the values of a JSON file begin and end, without reading all of it: an array's elements, or values in a row."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

BLOCK = 4 << 20
MAX_RECORD = 512 << 20
_MARK = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[][{}]|"', re.DOTALL)
_SPACE = re.compile(rb"[\s,]*")
_PLAIN = re.compile(rb'[^\s,\]\[{}"]+')


class CutOff(ValueError):
    """The file ends, or goes wrong, inside a value; ``start`` is the byte where that value begins."""

    def __init__(self, message: str, start: int) -> None:
        super().__init__(message)
        self.start = start


@dataclass
class Window:
    """The part of a file that is in memory."""

    file: BinaryIO
    data: bytes = b""
    offset: int = 0  # of data[0] in the file
    ended: bool = False

    def more(self, keep: int) -> int:
        """Drop what stands before ``keep`` and read on, at least as much as is kept; returns the new place of keep."""
        self.data, self.offset = self.data[keep:], self.offset + keep
        fresh = self.file.read(max(BLOCK, len(self.data)))
        self.ended = not fresh
        self.data += fresh
        return 0


def values(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """(place in the file, text) of every value: the elements of an array, or values that follow one another."""
    window = Window(file)
    window.more(0)
    at = 3 if window.data.startswith(b"\xef\xbb\xbf") else 0
    at, _ = _skip(window, at)
    array = window.data[at : at + 1] == b"["
    at += array
    while True:
        at, more = _skip(window, at)
        if not more:
            if array:
                raise CutOff("the file ends before its array does", window.offset + at)
            return
        first = window.data[at : at + 1]
        if array and first == b"]":
            at, more = _skip(window, at + 1)
            if more:
                raise CutOff("something follows the end of the array", window.offset + at)
            return
        at, end = _value(window, at)
        yield window.offset + at, window.data[at:end]
        at = end


def _skip(window: Window, at: int) -> tuple[int, bool]:
    """(where the next value begins, whether there is one)."""
    while True:
        found = _SPACE.match(window.data, at)
        at = found.end() if found else at
        if at < len(window.data):
            return at, True
        at = window.more(at)
        if window.ended:
            return at, False


def _value(window: Window, at: int) -> tuple[int, int]:
    """(start, end) of the value at a place; more of the file is read until it is complete."""
    while True:
        end = _end(window.data, at)
        if end is not None and (end < len(window.data) or window.ended or window.data[end - 1 : end] in b'}]"'):
            return at, end
        if window.ended:
            raise CutOff("the JSON is cut off inside this record", window.offset + at)
        if len(window.data) - at > MAX_RECORD:
            raise CutOff(f"a record of more than {MAX_RECORD >> 20} MB", window.offset + at)
        at = window.more(at)


def _end(data: bytes, at: int) -> int | None:
    """Where the value that begins at a place ends; None if that is not in the data."""
    if data[at] not in b'{["':
        plain = _PLAIN.match(data, at)
        return plain.end() if plain else at + 1
    depth = 0
    for mark in _MARK.finditer(data, at):
        text = mark.group()
        if text in (b"{", b"["):
            depth += 1
        elif text in (b"}", b"]"):
            depth -= 1
        elif text == b'"':  # a string that does not close
            return None
        if depth <= 0:
            return mark.end()
    return None
