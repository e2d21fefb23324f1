"""Read files that a user gave: files and pipes only, up to a bound, with errors of one sentence."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from recollect.files.half_characters import WHAT as HALF
from recollect.files.half_characters import line_of_half, says_half
from recollect.files.waiting_files import opened_without_waiting
from recollect.types import BadInput

MB = 1 << 20
MOST_LINE = 512 * MB  # of one line, which is one record
MOST_FILE = 2048 * MB  # of a file that is read as a whole
MOST_TEXT = 256 * MB  # of a document or a database that one task holds
MOST_DEPTH = 200  # lists and objects inside each other
BLOCK = 4 * MB


def refuse_odd(path: Path, what: str = "data file") -> None:
    """Refuse a path that is neither a file nor a pipe: nothing, a folder, a device."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        link = " (the link there leads nowhere)" if path.is_symlink() else ""
        raise BadInput(f"no {what} at {path}{link}") from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if stat.S_ISDIR(mode):
        raise BadInput(f"{path} is a folder; a {what} is needed")
    if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
        raise BadInput(f"{path} is neither a file nor a pipe; a {what} is needed")


def open_file(path: Path, what: str = "data file") -> BinaryIO:
    """A file or a pipe, opened to read bytes. A pipe that nobody writes to is refused after a while."""
    refuse_odd(path, what)
    try:
        return opened_without_waiting(path)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}") from None


def read_bytes(path: Path, most: int = MOST_FILE, what: str = "data file") -> bytes:
    """The bytes of a file, up to a bound."""
    with open_file(path, what) as file:
        try:
            if path.stat().st_size > most:
                raise BadInput(f"{path} has more than the {most // MB} MB that are read of a {what}")
            found = bytearray()
            while len(found) <= most and (block := file.read(min(BLOCK, most + 1 - len(found)))):
                found += block
        except OSError as error:
            raise BadInput(f"{path} cannot be read: {error.strerror or error}") from None
    if len(found) > most:
        raise BadInput(f"{path} has more than the {most // MB} MB that are read of a {what}")
    return bytes(found)


def read_text(path: Path, most: int = MOST_FILE, what: str = "data file", errors: str = "strict") -> str:
    """The same as UTF-8 text."""
    try:
        return read_bytes(path, most, what).decode("utf-8-sig", errors)
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8 (byte {error.start})") from None


def read_json(path: Path, most: int = MOST_FILE, what: str = "data file") -> Any:
    """The value of a JSON file."""
    return parse_json(read_text(path, most, what), str(path))


def parse_json(text: str | bytes, place: str, line: int = 0) -> Any:
    """The value of a JSON text; ``place``, and ``line`` if it is given, are for messages."""
    at = f"{place}: broken JSON at line {line}" if line else f"{place}: broken JSON"
    try:
        text = text if isinstance(text, str) else text.decode("utf-8-sig")
        value = json.loads(text)
    except json.JSONDecodeError as error:
        where = "" if line else f" at line {error.lineno}"
        raise BadInput(f"{at}{where}, column {error.colno}: {error.msg}") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{at}: it is not UTF-8 (byte {error.start})") from None
    except RecursionError:
        raise BadInput(f"{at}: {_DEEP}") from None
    except ValueError:  # Python bounds the digits of a number
        raise BadInput(f"{at}: a number has thousands of digits") from None
    if is_deep(value):
        raise BadInput(f"{at}: {_DEEP}")
    if says_half(text, value):
        where = "" if line else f" at line {line_of_half(text)}"
        raise BadInput(f"{at}{where}: it holds {HALF}")
    return value


_DEEP = f"it is nested more than {MOST_DEPTH} deep"


def is_deep(value: Any) -> bool:
    """True for values that are nested too deep to be processed."""
    level = [value]
    for _ in range(MOST_DEPTH):
        inside = (v.values() if isinstance(v, dict) else v for v in level if isinstance(v, dict | list))
        level = [child for children in inside for child in children if isinstance(child, dict | list)]
        if not level:
            return False
    return True


def lines(path: Path, most: int = MOST_LINE) -> Iterator[bytes]:
    """The lines of a file, each no longer than a bound."""
    with open_file(path) as file:
        try:
            yield from bounded(file, str(path), most)
        except OSError as error:
            raise BadInput(f"{path} cannot be read: {error.strerror or error}") from None


def bounded(file: BinaryIO, place: str, most: int = MOST_LINE) -> Iterator[bytes]:
    """The lines of an open file, each up to a bound."""
    number = 0
    while line := file.readline(most + 1):
        number += 1
        if len(line) > most:
            raise BadInput(f"{place}, line {number}: it is longer than the {most // MB} MB that a line may have")
        yield line
