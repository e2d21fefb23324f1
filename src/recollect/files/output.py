"""Outputs: a place that cannot be written to is refused in one sentence, before any work is done."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path

from recollect.types import BadInput


def refuse_output(path: Path, what: str) -> None:
    """Refuse an output that cannot be made; ``what`` names it in the message."""
    _refuse_dangling(path.expanduser().absolute(), what)
    refuse_unwritable(path.parent, what)


def refuse_unwritable(folder: Path, what: str) -> None:
    """Refuse a folder, existing or not, that cannot be written to; ``what`` names it in the message."""
    place = folder.expanduser().absolute()
    try:
        for part in takewhile(lambda p: not p.exists(), (place, *place.parents)):
            _refuse_dangling(part, what)
        place = next(p for p in (place, *place.parents) if p.exists())
        with tempfile.TemporaryFile(dir=place):  # permissions alone do not tell: read-only disks, /proc
            pass
    except OSError as error:
        why = f"{place} is not a folder that takes files ({error.strerror}); name another place"
        raise BadInput(f"{what} cannot be written: {why}") from None


def _refuse_dangling(path: Path, what: str) -> None:
    if path.is_symlink() and not path.exists():
        raise BadInput(f"{what} cannot be written: {path} is a link that leads nowhere; name another place")


class Unwritten(BadInput, OSError):
    """Something could not be written."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Name the file or folder that is being written if its disk is full or fails."""
    try:
        yield
    except Unwritten:
        raise
    except OSError as error:
        raise unwritten(path, error) from error


def unwritten(path: Path, error: Exception, what: str = "") -> Unwritten:
    """The message for an output that could not be written; libraries have errors of their own for a full disk."""
    why = getattr(error, "strerror", None) or " ".join(str(error).split())[:200]
    then = "when it is back" if isinstance(error, TimeoutError) else "make room, and"
    return Unwritten(f"{what}{path} could not be written: {why}; {then} the same command goes on")


def write_atomic(path: Path, data: str | bytes) -> None:
    """Write a file beside its place, sync it and rename it in, so that it is never incomplete."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with writing(path):
            with temporary.open("wb") as file:
                file.write(data.encode() if isinstance(data, str) else data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
    except BadInput:
        temporary.unlink(missing_ok=True)
        raise
