"""The second wall: a seccomp filter that refuses the system calls with which programs leave a sandbox.

Refused calls fail with EPERM, so programs see an error and not their death. ``clone3`` answers ENOSYS, because a filter
cannot look at its flags and the C library then uses ``clone``, whose flags it can. Sockets of every family are refused:
the network namespace is empty, but abstract unix sockets would reach other sessions. Of socket pairs those of datagrams
are refused too, which can send to any path. Limits and priorities may be set for the caller alone, not for its keeper.
Memory that is shared but in no file is refused, and huge pages are: a process can hold them without showing them.
"""

from __future__ import annotations

import ctypes
import struct
from typing import Final

from recollect.sandbox.inside import kernel

_TABLE: Final = """
    ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, kcmp 312 272,
    pidfd_getfd 438 438, process_madvise 440 440, perf_event_open 298 241, bpf 321 280,
    mount 165 40, umount2 166 39, pivot_root 155 41, chroot 161 51, setns 308 268,
    unshare 272 97, move_mount 429 429, open_tree 428 428, fsopen 430 430,
    fsconfig 431 431, fsmount 432 432, fspick 433 433, mount_setattr 442 442,
    open_by_handle_at 304 265, name_to_handle_at 303 264, fanotify_init 300 262,
    mknod 133 -1, mknodat 259 33, quotactl 179 60, quotactl_fd 443 443, acct 163 89,
    socket 41 198, connect 42 203, bind 49 200, listen 50 201,
    io_uring_setup 425 425, io_uring_enter 426 426, io_uring_register 427 427,
    memfd_create 319 279, memfd_secret 447 447, userfaultfd 323 282,
    shmget 29 194, msgget 68 186, semget 64 190, mq_open 240 180,
    keyctl 250 219, add_key 248 217, request_key 249 218, syslog 103 116,
    init_module 175 105, finit_module 313 273, delete_module 176 106, reboot 169 142,
    kexec_load 246 104, kexec_file_load 320 294, swapon 167 224, swapoff 168 225,
    settimeofday 164 170, clock_settime 227 112, clock_adjtime 305 266, adjtimex 159 171,
    sethostname 170 161, setdomainname 171 162, vhangup 153 58, personality 135 92,
    iopl 172 -1, ioperm 173 -1, modify_ldt 154 -1, uselib 134 -1, sysfs 139 -1,
    migrate_pages 256 238, move_pages 279 239, mbind 237 235, set_mempolicy 238 237
"""  # name, number on x86_64, number on aarch64
_ON_OTHERS: Final = """
    prlimit64 302 261 0 0, sched_setaffinity 203 122 0 0, sched_setscheduler 144 119 0 0,
    sched_setparam 142 118 0 0, sched_setattr 314 274 0 0,
    setpriority 141 140 1 1, ioprio_set 251 30 1 2
"""  # the same, then the argument that names a process and must be 0, and the largest first argument where that is 1
REFUSED: Final = {name: (int(x86), int(arm)) for name, x86, arm in map(str.split, _TABLE.split(","))}
OWN_ONLY: Final = {row[0]: tuple(map(int, row[1:])) for row in map(str.split, _ON_OTHERS.split(","))}
_CLONE: Final = (56, 220)
_SOCKETPAIR: Final = (53, 199)
_MMAP: Final = (9, 222)
_SHARED, _ANONYMOUS, _HUGE = 0x01, 0x20, 0x40000
_STREAM, _SEQPACKET = 1, 5
_CLONE3: Final = (435, 435)
_ARCHITECTURES: Final = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_NAMESPACES: Final = (
    kernel.NEWNS | kernel.NEWCGROUP | kernel.NEWUTS | kernel.NEWIPC | kernel.NEWUSER | kernel.NEWPID | kernel.NEWNET
)
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _ENOSYS = 1, 38
_LOAD, _EQUAL, _AT_LEAST, _ABOVE, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x25, 0x45, 0x54, 0x06
Line = tuple[int, int, int, int]


def program(machine: str) -> bytes:
    """The filter for a machine's architecture, as kernel bytecode; empty when the architecture is not known."""
    if machine not in _ARCHITECTURES:
        return b""
    column, audit = _ARCHITECTURES[machine]
    numbers = sorted(pair[column] for pair in REFUSED.values() if pair[column] >= 0)
    lines: list[Line] = [
        (_LOAD, 0, 0, 4),  # the architecture of the call
        (_EQUAL, 1, 0, audit),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),  # its number
    ]
    if machine == "x86_64":  # the x32 numbers
        lines += [(_AT_LEAST, 0, 1, 0x40000000), (_RETURN, 0, 0, _ERRNO | _ENOSYS)]
    lines += [(_EQUAL, 0, 1, _CLONE3[column]), (_RETURN, 0, 0, _ERRNO | _ENOSYS)]
    for number in numbers:
        lines += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | _EPERM)]
    for row in OWN_ONLY.values():
        lines += _own_only(row[column], row[2], row[3])
    lines += _stream_pairs(_SOCKETPAIR[column])
    lines += _counted_maps(_MMAP[column])
    lines += [
        (_EQUAL, 0, 3, _CLONE[column]),
        (_argument(0)),
        (_ANY_BIT, 0, 1, _NAMESPACES),
        (_RETURN, 0, 0, _ERRNO | _EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def _argument(which: int) -> Line:
    """Load the low half of an argument."""
    return _LOAD, 0, 0, 16 + 8 * which


def _own_only(number: int, who: int, most: int) -> list[Line]:
    """Allow a call for the caller alone; with ``most`` its first argument says what ``who`` means, up to a user."""
    kind = [_argument(0), (_ABOVE, 2, 0, most)] if most else []
    lines = [*kind, _argument(who), (_EQUAL, 1, 0, 0), (_RETURN, 0, 0, _ERRNO | _EPERM), (_RETURN, 0, 0, _ALLOW)]
    return [(_EQUAL, 0, len(lines), number), *lines]


def _stream_pairs(number: int) -> list[Line]:
    """Allow pairs of sockets that are connected for good."""
    return [
        (_EQUAL, 0, 6, number),
        _argument(1),
        (_AND, 0, 0, 0xF),  # without the flags
        (_EQUAL, 2, 0, _STREAM),
        (_EQUAL, 1, 0, _SEQPACKET),
        (_RETURN, 0, 0, _ERRNO | _EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]


def _counted_maps(number: int) -> list[Line]:
    """Allow maps of files, and of memory that counts as the caller's own."""
    return [
        (_EQUAL, 0, 7, number),
        _argument(3),
        (_ANY_BIT, 3, 0, _HUGE),
        (_ANY_BIT, 0, 3, _ANONYMOUS),
        (_ANY_BIT, 1, 2, _SHARED),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ERRNO | _EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]


def install() -> bool:
    """Put this process and its children behind the filter; False when the kernel or the architecture has none."""
    code = program(kernel.MACHINE)
    if not code:
        return False
    try:
        kernel.prctl(kernel.PR_SET_SECCOMP, 2, ctypes.byref(_Program(len(code) // 8, code)))
    except OSError:
        return False
    return True
