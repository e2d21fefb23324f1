"""File operations inside a sandbox: paths mean what they mean there, so no link and no ``..`` leads to the host."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

MAX_READ = 4_000_000
MAX_LISTED = 1000
MAX_CHANGED = 2000
PIECE = 1 << 20


def _open(path: str, follow: bool = True) -> int:
    """A descriptor of a regular file; nothing else is read, for a pipe or a device may never end."""
    found = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise OSError(f"{path} is not a regular file")
    return found


def _text(path: str) -> tuple[str, str]:
    """What can be shown of a file, and a remark about what cannot."""
    with open(_open(path), "rb") as file:
        size, data = os.fstat(file.fileno()).st_size, file.read(MAX_READ)
    text = data.decode("utf-8", "replace")
    remarks = [f"only the first {len(data)} of {size} bytes"] if size > len(data) else []
    if text.encode("utf-8", "replace") != data and not remarks:
        remarks = ["bytes that are not UTF-8 are shown as \ufffd"]
    return text, "".join(f"\n({remark})" for remark in remarks)


def _lines(text: str) -> list[str]:
    """Lines as an editor counts them; only a line feed ends one."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def read_file(path: str, start: int, lines: int) -> str:
    """Lines of a file; says how many there are when it does not show all."""
    whole, remark = _text(path)
    text = _lines(whole)
    first = max(start, 1)
    last = len(text) if lines <= 0 else min(first + lines - 1, len(text))
    if first == 1 and last == len(text):
        return ("\n".join(text) or "(empty file)") + remark
    if first > len(text):
        return f"(the file has {len(text)} lines)" + remark
    return "\n".join(text[first - 1 : last]) + f"\n(lines {first} to {last} of {len(text)})" + remark


def write_file(path: str, text: str, append: bool) -> str:
    """Make or replace a file, or add to its end; a file that cannot be written in full stays as it was."""
    data = text.encode()
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    if append and os.path.exists(path):
        _append(path, data)
    else:
        _replace(path, data)
    return f"wrote {len(text)} characters to {path}"


def edit_file(path: str, old: str, new: str, every: bool) -> str:
    """Replace a text that occurs once, or every time it occurs; every other byte is kept."""
    with open(_open(path), "rb") as file:
        data = file.read()
    wanted = old.encode()
    count = data.count(wanted) if wanted else 0
    if count == 0:
        raise ValueError(f"the text to replace does not occur in {path}" if old else "the text to replace is empty")
    if count > 1 and not every:
        raise ValueError(f"the text to replace occurs {count} times in {path}; make it unique or replace all")
    _replace(path, data.replace(wanted, new.encode()))
    return f"replaced {count} occurrence{'s' if count > 1 else ''} in {path}"


def _replace(path: str, data: bytes) -> None:
    """Put a new file in the place of an old one, in one step; a link is followed, and what it leads to is replaced."""
    place = os.path.realpath(path)
    mode = 0o644
    with suppress(FileNotFoundError):
        there = os.stat(place)
        if stat.S_ISDIR(there.st_mode) or not stat.S_ISREG(there.st_mode):
            raise OSError(errno.EISDIR if stat.S_ISDIR(there.st_mode) else errno.EINVAL, "Not a regular file", path)
        if not os.access(place, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        mode = stat.S_IMODE(there.st_mode)
    made, name = tempfile.mkstemp(dir=os.path.dirname(place), prefix=".writing-")
    try:
        with open(made, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), mode)
        os.replace(name, place)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def _append(path: str, data: bytes) -> None:
    """Add to the end of a regular file, all of it or nothing."""
    place = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(place, "ab") as file:
        if not stat.S_ISREG(os.fstat(place).st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", path)
        size = os.fstat(place).st_size
        try:
            file.write(data)
            file.flush()
        except OSError:
            os.ftruncate(place, size)
            raise


def changed_files(known: Mapping[str, str], skipped: list[str]) -> str:
    """As JSON, the size of every regular file that has not the known SHA-256, and the known ones that are missing."""
    changed: dict[str, int] = {}
    kept: set[str] = set()
    for path in _walk(".", frozenset(skipped)):
        try:
            with open(_open(path, follow=False), "rb") as file:
                same = path in known and hashlib.file_digest(file, "sha256").hexdigest() == known[path]
                size = os.fstat(file.fileno()).st_size
            path.encode()
        except (OSError, UnicodeEncodeError):
            continue
        if same:
            kept.add(path)
        else:
            changed[path] = size
        if len(changed) > MAX_CHANGED:
            raise ValueError(f"more than {MAX_CHANGED} files were changed")
    return json.dumps({"changed": changed, "missing": sorted(set(known) - kept - set(changed))})


def read_bytes(path: str, start: int, count: int) -> str:
    """A piece of a file, as base64."""
    with open(_open(path, follow=False), "rb") as file:
        file.seek(start)
        return base64.b64encode(file.read(min(count, PIECE))).decode()


def _walk(path: str, skipped: frozenset[str] = frozenset()) -> Iterator[str]:
    """The files below a folder, each folder's own before those of the folders in it; links to folders are left out."""
    waiting = [path]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            if not entry.is_dir():
                yield os.path.relpath(entry.path, path) if path == "." else entry.path
        inner = (entry for entry in entries if entry.is_dir(follow_symlinks=False) and entry.name not in skipped)
        waiting += [entry.path for entry in inner][::-1]


def list_files(path: str) -> str:
    """Every file below a folder, with its size."""
    if not os.path.isdir(path):
        raise FileNotFoundError(f"no folder {path}")
    found = [f"{name} ({os.lstat(name).st_size} bytes)" for name in islice(_walk(path), MAX_LISTED + 1)]
    more = [f"(only the first {MAX_LISTED} files)"] if len(found) > MAX_LISTED else []
    return "\n".join(found[:MAX_LISTED] + more) or "(no files)"


def grep(pattern: str, path: str) -> str:
    """The lines that match a regular expression, in a file or in every file below a folder."""
    wanted = re.compile(pattern)
    names = _walk(path) if os.path.isdir(path) else iter([path])
    found: list[str] = []
    for name in names:
        try:
            text, remark = _text(name)
        except OSError:
            if name == path:
                raise
            continue
        found += [f"{name}:{i}: {line}" for i, line in enumerate(_lines(text), 1) if wanted.search(line)]
        found += [f"{name}: {remark.strip()}"] if remark.startswith("\n(only") else []
        if len(found) > MAX_LISTED:
            return "\n".join([*found[:MAX_LISTED], f"(only the first {MAX_LISTED} lines)"])
    return "\n".join(found) or "(no line matches)"


OPERATIONS: dict[str, Callable[..., str]] = {
    "read_file": read_file,
    "write_file": write_file,
    "edit_file": edit_file,
    "list_files": list_files,
    "grep": grep,
    "changed_files": changed_files,
    "read_bytes": read_bytes,
}


def run(name: str, arguments: dict[str, Any]) -> tuple[int, str]:
    """The exit status and text of an operation."""
    try:
        return 0, OPERATIONS[name](**arguments)
    except MemoryError:
        return 1, "it does not fit into memory"
    except (OSError, ValueError, OverflowError, RecursionError, re.error) as error:
        text = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) and error.strerror else str(error)
        return 1, text
