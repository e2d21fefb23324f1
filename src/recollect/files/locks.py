"""One process at a time writes to a place: a lock that ends with the process that holds it, however that ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType

from recollect.types import BadInput

NAME = ".lock"  # of the file inside a folder that is locked


class Lock:
    """An exclusive lock, held until it is released or the process ends. Use it as a context, or release it."""

    def __init__(self, file: Path, what: str) -> None:
        self.handle: int | None = None
        file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(handle, 32).decode(errors="replace").strip()
            os.close(handle)
            if holder == str(os.getpid()):  # a process does not lock itself out
                return
            raise BadInput(f"{what} is in use{_by(holder)}; wait for it, or name another place") from None
        except OSError:  # a file system without locks
            os.close(handle)
            return
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        self.handle = handle

    def release(self) -> None:
        """Let others in."""
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()

    def __del__(self) -> None:
        self.release()


def lock_folder(folder: Path, what: str) -> Lock:
    """Lock a folder, which is made if it is not there."""
    return Lock(folder / NAME, what)


def lock_file(file: Path, what: str) -> Lock:
    """Lock a file that is written, by a hidden one beside it."""
    return Lock(file.with_name(f".{file.name}{NAME}"), what)


def refuse_locked(folder: Path, what: str) -> None:
    """Refuse a folder that a process holds, without locking it."""
    if (folder / NAME).is_file():
        lock_folder(folder, what).release()


def _by(holder: str) -> str:
    return f" by process {holder}" if holder.isdigit() else ""
