"""Remove a folder whatever a program has left in it: any depth, any names, any permissions, links never followed."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_folder(path: Path) -> None:
    """Remove a folder. What cannot be removed stays, without an error.

    Folders inside are moved up to the top before they are emptied, so two descriptors are enough for any depth.
    """
    try:
        top = _opened(str(path), None)
    except OSError:
        return
    try:
        while _pass(top):
            pass
    finally:
        os.close(top)
    with suppress(OSError):
        os.rmdir(path)


def _pass(top: int) -> int:
    """Empty the folders in the top one, whose own folders move up; how many entries were removed or moved."""
    done = 0
    with os.scandir(top) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                done += _emptied(top, entry.name)
            else:
                done += _removed(top, entry.name)
    return done


def _emptied(top: int, name: str) -> int:
    done = 0
    try:
        folder = _opened(name, top)
    except OSError:
        return _removed(top, name, folder=True)
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                inner = entry.is_dir(follow_symlinks=False)
                done += _moved(folder, entry.name, top) if inner else _removed(folder, entry.name)
    except OSError:
        pass
    finally:
        os.close(folder)
    return done + _removed(top, name, folder=True)


def _opened(name: str, parent: int | None) -> int:
    """A descriptor of a folder that its owner may read and change; a link is not followed."""
    place = os.open(name, os.O_PATH | FOLDER, dir_fd=parent)
    try:
        with suppress(OSError):
            os.chmod(f"/proc/self/fd/{place}", 0o700)
    finally:
        os.close(place)
    return os.open(name, os.O_RDONLY | FOLDER, dir_fd=parent)


def _moved(folder: int, name: str, top: int) -> int:
    """Move an inner folder to the top; moving asks for the right to change it, too."""
    with suppress(OSError):
        os.close(_opened(name, folder))
    with suppress(OSError):
        os.rename(name, secrets.token_hex(16), src_dir_fd=folder, dst_dir_fd=top)
        return 1
    return _removed(folder, name, folder=True)


def _removed(parent: int, name: str, folder: bool = False) -> int:
    with suppress(OSError):
        (os.rmdir if folder else os.unlink)(name, dir_fd=parent)
        return 1
    return 0
