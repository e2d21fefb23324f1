"""What can still be done where nothing isolates: the rights of root go, and memory that processes share is their own.

As root a mount namespace often works where user namespaces do not; then /dev/shm is empty and bounded, /dev/zero cannot
be mapped, and an interpreter in root's home can be reached. Without one, Landlock keeps programs from those places.
"""

from __future__ import annotations

import os
import stat
import sys
from typing import Any

from recollect.sandbox.inside import kernel
from recollect.sandbox.inside.view import DEVICES, NOBODY

SHM = "/dev/shm"
NEEDED = ("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/filesystems")


def enter(plan: dict[str, Any]) -> list[str]:
    """Give up what can be given up; the names of the walls that this makes. ``plan`` is told what may be used."""
    names: list[str] = []
    places = [sys.base_prefix, *plan["site"]]
    if os.geteuid() == 0 and _own_mounts(plan["limits"]["disk_mb"], places):
        names.append("private_shm")
        plan["writable"].append(SHM)
    plan["devices"] = [name for name in DEVICES if name != "zero" or names]
    if os.geteuid() == 0 and all(map(_open_to_all, places)):
        _become_nobody(plan["workspace"])
        names.append("nobody")
    return names


def _become_nobody(workspace: str) -> None:
    os.chown(workspace, NOBODY, NOBODY)
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def _own_mounts(disk_mb: int, places: list[str]) -> bool:
    """Mounts that the host does not see; False where even root may not."""
    flags = kernel.MS_NOSUID | kernel.MS_NODEV
    try:
        kernel.unshare(kernel.NEWNS | kernel.NEWIPC)
        kernel.mount("", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
        kernel.mount("tmpfs", SHM, "tmpfs", flags, f"mode=1777,size={disk_mb}m,nr_inodes={256 + 64 * disk_mb}")
        for name, device in DEVICES.items():
            if name != device:
                kernel.mount(f"/dev/{device}", f"/dev/{name}", "", kernel.MS_BIND)
        for closed in {_closed(place) for place in places} - {""}:
            _uncover(closed, [place for place in places if _closed(place) == closed])
    except OSError:
        return False
    return True


def _closed(place: str) -> str:
    """The uppermost folder on the way to a place that others may not enter; empty when there is none."""
    parts = place.strip("/").split("/")
    above = ["/" + "/".join(parts[: i + 1]) for i in range(len(parts))]
    return next((path for path in above if not os.stat(path).st_mode & stat.S_IXOTH), "")


def _uncover(closed: str, places: list[str]) -> None:
    """Show nothing of a folder but the named places in it."""
    held = [(place, os.open(place, os.O_PATH)) for place in places]
    kernel.mount("tmpfs", closed, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=0755,size=1m")
    for place, fd in held:
        os.makedirs(place, 0o755, exist_ok=True)
        if not os.listdir(place):  # it may lie in one that is shown already
            kernel.mount(f"/proc/self/fd/{fd}", place, "", kernel.MS_BIND | kernel.MS_REC)
            kernel.read_only(place)
        os.close(fd)


def _open_to_all(place: str) -> bool:
    return not _closed(place) and bool(os.stat(place).st_mode & stat.S_IROTH)
