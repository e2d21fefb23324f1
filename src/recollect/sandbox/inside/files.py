"""File operations inside a sandbox: paths mean what they mean there, so no link and no ``..`` leads to the host."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

MAX_READ = 4_000_000
MAX_LISTED = 1000


def _text(path: str) -> str:
    with open(path, "rb", opener=lambda p, f: os.open(p, f | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"{path} is not a regular file")
        return file.read(MAX_READ).decode("utf-8", "replace")


def read_file(path: str, start: int, lines: int) -> str:
    """Lines of a file; says how many there are when it does not show all."""
    text = _text(path).splitlines()
    first = max(start, 1)
    last = len(text) if lines <= 0 else min(first + lines - 1, len(text))
    if first == 1 and last == len(text):
        return "\n".join(text) or "(empty file)"
    if first > len(text):
        return f"(the file has {len(text)} lines)"
    return "\n".join(text[first - 1 : last]) + f"\n(lines {first} to {last} of {len(text)})"


def write_file(path: str, text: str, append: bool) -> str:
    """Make or replace a file, or add to its end."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "a" if append else "w", opener=lambda p, f: os.open(p, f | os.O_NONBLOCK, 0o644)) as file:
        file.write(text)
    return f"wrote {len(text)} characters to {path}"


def edit_file(path: str, old: str, new: str, every: bool) -> str:
    """Replace a text that occurs once, or every time it occurs."""
    text = _text(path)
    count = text.count(old) if old else 0
    if count == 0:
        raise ValueError(f"the text to replace does not occur in {path}" if old else "the text to replace is empty")
    if count > 1 and not every:
        raise ValueError(f"the text to replace occurs {count} times in {path}; make it unique or replace all")
    with open(path, "w") as file:
        file.write(text.replace(old, new))
    return f"replaced {count} occurrence{'s' if count > 1 else ''} in {path}"


def _walk(path: str) -> Iterator[str]:
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            yield os.path.relpath(os.path.join(folder, name), path) if path == "." else os.path.join(folder, name)


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
            lines = _text(name).splitlines()
        except OSError:
            if name == path:
                raise
            continue
        found += [f"{name}:{i}: {line}" for i, line in enumerate(lines, 1) if wanted.search(line)]
        if len(found) > MAX_LISTED:
            return "\n".join([*found[:MAX_LISTED], f"(only the first {MAX_LISTED} lines)"])
    return "\n".join(found) or "(no line matches)"


OPERATIONS: dict[str, Callable[..., str]] = {
    "read_file": read_file,
    "write_file": write_file,
    "edit_file": edit_file,
    "list_files": list_files,
    "grep": grep,
}


def run(name: str, arguments: dict[str, Any]) -> tuple[int, str]:
    """The exit status and text of an operation."""
    try:
        return 0, OPERATIONS[name](**arguments)
    except (OSError, ValueError, re.error) as error:
        text = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) and error.strerror else str(error)
        return 1, text
