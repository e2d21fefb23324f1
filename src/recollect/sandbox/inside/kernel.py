"""The Linux system calls that Python has no name for, each raising OSError when it fails."""

from __future__ import annotations

import ctypes
import os

NEWNS, NEWCGROUP, NEWUTS, NEWIPC = 0x20000, 0x02000000, 0x04000000, 0x08000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP = 1, 4, 36, 38, 22
MACHINE = os.uname().machine
_CLONE, _PIVOT_ROOT, _CAPSET = {"x86_64": (56, 155, 126), "aarch64": (220, 41, 91)}.get(MACHINE, (-1, -1, -1))
_MOUNT_SETATTR, _AT_RECURSIVE = 442, 0x8000

_libc = ctypes.PyDLL(None, use_errno=True)  # keeps the interpreter's lock, which a raw clone must not lose


def _done(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def call(what: str, number: int, *arguments: object) -> int:
    """A system call by number; integers are passed as 64 bits wide."""
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return _done(_libc.syscall(ctypes.c_long(number), *wide), what)


def unshare(flags: int) -> None:
    """Leave the named namespaces for new ones."""
    _done(_libc.unshare(ctypes.c_int(flags)), "unshare")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2)."""
    texts = [text.encode() if text else None for text in (source, target, kind, data)]
    _done(_libc.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3]), f"mount {target}")


def unmount(target: str) -> None:
    """Take a mount away, with everything below it."""
    _done(_libc.umount2(target.encode(), MNT_DETACH), f"umount {target}")


def pivot_root(new: str, old: str) -> None:
    """Make ``new`` the root; the old one is found at ``old``."""
    call("pivot_root", _PIVOT_ROOT, ctypes.c_char_p(new.encode()), ctypes.c_char_p(old.encode()))


def read_only(target: str) -> None:
    """Forbid writing, set-uid programs and devices in a mount and, where the kernel can, in all mounts below it."""
    attributes = (ctypes.c_uint64 * 4)(MS_RDONLY | MS_NOSUID | MS_NODEV, 0, 0, 0)
    path, size = ctypes.c_char_p(target.encode()), ctypes.sizeof(attributes)
    try:
        call("mount_setattr", _MOUNT_SETATTR, -100, path, _AT_RECURSIVE, ctypes.byref(attributes), size)
    except OSError:
        flags = MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV
        mount("", target, "", flags | (os.statvfs(target).f_flag & MS_NOEXEC))


def prctl(option: int, value: int, extra: object = 0) -> None:
    """prctl(2)."""
    third = ctypes.c_ulong(extra) if isinstance(extra, int) else extra
    zero = ctypes.c_ulong(0)
    _done(_libc.prctl(ctypes.c_int(option), ctypes.c_ulong(value), third, zero, zero), f"prctl {option}")


def drop_capabilities() -> None:
    """Give up every capability; with no_new_privs none comes back."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    nothing = (ctypes.c_uint32 * 6)()
    call("capset", _CAPSET, ctypes.byref(header), ctypes.byref(nothing))


def fork_into(flags: int) -> int:
    """os.fork() whose child starts in new namespaces; it is process 1 of a new process namespace."""
    if _CLONE < 0:
        raise OSError(38, f"clone is not known for {MACHINE}")
    api = ctypes.pythonapi
    api.PyOS_BeforeFork()
    pid = _libc.syscall(ctypes.c_long(_CLONE), *map(ctypes.c_long, (flags | 17, 0, 0, 0, 0)))  # 17: SIGCHLD
    number = ctypes.get_errno()
    if pid == 0:
        api.PyOS_AfterFork_Child()
        return 0
    api.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(number, f"clone: {os.strerror(number)}")
    return pid


def map_user(proc: str, inside: int, outside_uid: int, outside_gid: int) -> None:
    """In a new user namespace: be user ``inside`` there, who is nobody but the given user outside."""
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{inside} {outside_uid} 1"),
        ("gid_map", f"{inside} {outside_gid} 1"),
    ):
        with open(f"{proc}/self/{name}", "w") as file:
            file.write(text)
