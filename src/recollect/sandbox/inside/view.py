"""The first wall: namespaces, and a file system that holds only what it is given.

A box is entered in three steps. The mounts are prepared (as root where the host is root, so that an interpreter in
root's home can be shown without the rest of it); rights are dropped to a user without any; then new user, network,
process, mount, IPC and host-name namespaces are entered and the old file system is let go.
"""

from __future__ import annotations

import os
import signal
from typing import Any

from recollect.sandbox.inside import kernel

USER = 1000  # who programs are inside
NOBODY = 65534
DEVICES = {"null": "null", "zero": "full", "full": "full", "random": "random", "urandom": "urandom"}
"""By name, the host's device that it is. One that reads as zeros but cannot be mapped is /dev/zero: a shared map of the
real one is memory that no process shows."""
WORKSPACE = "/workspace"
PRIVATE = ("/tmp", "/dev/shm", WORKSPACE)  # a session has its own
EVERYTHING = kernel.NEWUSER | kernel.NEWNS | kernel.NEWPID | kernel.NEWNET | kernel.NEWIPC | kernel.NEWUTS


def enter(plan: dict[str, Any]) -> None:
    """Move this process into a box and return in its process 1; the caller's process waits outside and ends with it."""
    uid, gid = os.getuid(), os.getgid()
    if uid == 0:
        kernel.unshare(kernel.NEWNS)
    else:
        kernel.unshare(kernel.NEWUSER | kernel.NEWNS)
        kernel.map_user("/proc", USER, uid, gid)
    _build(plan)
    if uid == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
    uid, gid = os.getuid(), os.getgid()
    kernel.unshare(EVERYTHING)
    kernel.map_user("/old/proc", USER, uid, gid)
    pid = os.fork()
    if pid:
        os.closerange(0, 1024)
        os.waitpid(pid, 0)
        os._exit(0)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    _let_go()


def _build(plan: dict[str, Any]) -> None:
    """Under /new, everything that will be visible; the host's file system is at /old meanwhile."""
    kernel.mount("", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", "/tmp", "tmpfs", kernel.MS_NOSUID, "mode=0755,size=1m")
    os.mkdir("/tmp/new", 0o755)
    os.mkdir("/tmp/old", 0o755)
    kernel.pivot_root("/tmp", "/tmp/old")
    os.chdir("/")
    kernel.mount("tmpfs", "/new", "tmpfs", kernel.MS_NOSUID, "mode=0755,size=1m")
    for name in ("tmp", "proc", "dev", "dev/shm", WORKSPACE[1:]):
        os.makedirs(f"/new/{name}", 0o755)
    for source, target in plan["binds"]:
        _bind(f"/old{source}", f"/new{target}")
        kernel.read_only(f"/new{target}")
    for name, device in DEVICES.items():
        _bind(f"/old/dev/{device}", f"/new/dev/{name}")
    for name, target in {"fd": "fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}.items():
        os.symlink(f"/proc/self/{target}", f"/new/dev/{name}")
    for name, target in plan["links"].items():
        os.symlink(target, f"/new{name}")


def _bind(source: str, target: str) -> None:
    if os.path.isdir(source):
        os.makedirs(target, 0o755, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)
        with open(target, "a"):
            pass
    kernel.mount(source, target, "", kernel.MS_BIND | kernel.MS_REC)


def _let_go() -> None:
    """Make /new the root and forget the host's file system."""
    kernel.mount("/new", "/new", "", kernel.MS_BIND | kernel.MS_REC)  # a mount of our own: an inherited one is locked
    mount_proc("/new/proc")
    os.chdir("/new")
    kernel.pivot_root(".", ".")
    kernel.unmount(".")
    os.chdir("/")
    flags = kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | kernel.MS_NOSUID
    kernel.mount("", "/", "", flags)


def mount_proc(target: str) -> bool:
    """Show this namespace's own processes; False where the host (a container with a masked /proc) forbids it."""
    try:
        kernel.mount("proc", target, "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    except OSError:
        return False
    return True


def enter_session(uid: int, gid: int, plan: dict[str, Any]) -> None:
    """In process 1 of a session's own namespaces: its own /workspace, /tmp, /dev/shm and /proc."""
    kernel.map_user("/proc", USER, uid, gid)
    if not mount_proc("/proc"):
        raise OSError("a session needs its own /proc")
    private_folders(plan)


def private_folders(plan: dict[str, Any]) -> None:
    """Empty writable folders that share one bound on their size, and in them what a program is shown there."""
    disk_mb, flags = plan["limits"]["disk_mb"], kernel.MS_NOSUID | kernel.MS_NODEV
    shown = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in plan["in_private"]}
    kernel.mount("tmpfs", "/tmp", "tmpfs", flags, f"mode=0755,size={disk_mb}m,nr_inodes={256 + 64 * disk_mb}")
    os.mkdir("/tmp/work")
    os.mkdir("/tmp/temporary")
    kernel.mount("/tmp/work", WORKSPACE, "", kernel.MS_BIND)
    kernel.mount("/tmp/temporary", "/dev/shm", "", kernel.MS_BIND)
    kernel.mount("/dev/shm", "/tmp", "", kernel.MS_BIND)
    for path, place in shown.items():
        _bind(f"/proc/self/fd/{place}", path)
        kernel.read_only(path)
        os.close(place)
