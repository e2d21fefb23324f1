"""Locks: one process at a time writes to a place. A lock ends with the process that holds it, however that ends."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from recollect.types import BadInput

NAME = ".lock"  # of the file inside a folder that is locked
LOOKS = 20  # at a lock whose holder has not written its number yet, 10 ms apart
_held: set[tuple[int, int]] = set()  # device and inode of the locks of this process


class Lock:
    """An exclusive lock, held until it is released or the process ends. Use it as a context, or release it.

    Releasing it removes the folders that it had to make, if they are empty.
    """

    def __init__(self, file: Path, what: str) -> None:
        self.handle: int | None = None
        self.file, self.process = file, os.getpid()
        self.made = _missing(file.parent)
        try:
            self.handle = _take(file, what)
        except OSError as error:
            self._remove_folders()
            raise BadInput(f"{what} cannot be locked: {file}: {error.strerror}; name another place") from None
        if self.handle is None:
            return
        self.key = _identity(os.fstat(self.handle))
        _held.add(self.key)
        os.ftruncate(self.handle, 0)
        os.pwrite(self.handle, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let others in."""
        if self.handle is None:
            return
        if self.process == os.getpid():  # a forked process holds a copy of what is not its own
            if _is_at(self.key, self.file):
                self.file.unlink(missing_ok=True)
            self._remove_folders()
            _held.discard(self.key)
        os.close(self.handle)
        self.handle = None

    def follow(self, folder: Path) -> None:
        """Follow the lock file to its new path after its folder was renamed."""
        self.file, self.made = folder / self.file.name, []

    def _remove_folders(self) -> None:
        with suppress(OSError):
            for folder in self.made:
                folder.rmdir()

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()

    def __del__(self) -> None:
        with suppress(OSError):
            self.release()


def lock_folder(folder: Path, what: str) -> Lock:
    """Lock a folder, and make it if needed."""
    return Lock(folder / NAME, what)


def lock_file(file: Path, what: str) -> Lock:
    """Lock an output file by a hidden file beside it."""
    return Lock(file.with_name(f".{file.name}{NAME}"), what)


def refuse_locked(folder: Path, what: str) -> None:
    """Refuse a folder that another process has locked, without locking it."""
    if (folder / NAME).is_file():
        lock_folder(folder, what).release()


def _take(file: Path, what: str) -> int | None:
    """A descriptor that holds the lock; None if this process has it already, or the disk has no locks."""
    while True:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            mine, holder = _identity(os.fstat(handle)) in _held, _holder(handle)
            os.close(handle)
            if mine:  # a process does not lock itself out
                return None
            raise BadInput(f"{what} is in use{_by(holder)}; wait for it, or name another place") from None
        except OSError:  # a file system without locks
            os.close(handle)
            return None
        if _is_at(_identity(os.fstat(handle)), file):
            return handle
        os.close(handle)  # the process before has just removed it


def _holder(handle: int) -> str:
    """The id of the process that holds a lock, as written in its file."""
    for _ in range(LOOKS):
        if text := os.pread(handle, 32, 0).decode(errors="replace").strip():
            return text
        time.sleep(0.01)
    return ""


def _by(holder: str) -> str:
    return f" by process {holder}" if holder.isdigit() else ""


def _missing(folder: Path) -> list[Path]:
    """Folders that have to be made, the innermost first."""
    chain = [folder, *folder.parents]
    return chain[: next((i for i, place in enumerate(chain) if place.exists()), 0)]


def _is_at(key: tuple[int, int], file: Path) -> bool:
    try:
        return _identity(os.stat(file)) == key
    except OSError:
        return False


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
