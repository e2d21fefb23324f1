"""A wall of its own around files, signals and TCP: Landlock, which stands even if the mounts were wrong."""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable
from typing import Final

from recollect.sandbox.inside import kernel

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL = 1, 2, 4, 8, 1 << 14, 1 << 15
_FILES_BY_ABI: Final = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # how many file rights a version of the interface knows
_TCP, _SCOPES = 0b11, 0b11  # bind and connect; abstract unix sockets and signals


def version() -> int:
    """The kernel's version of the interface, 0 when it has none."""
    try:
        return kernel.call("landlock", _CREATE, None, 0, 1)
    except OSError:
        return 0


def install(readable: Iterable[str], writable: Iterable[str]) -> bool:
    """Only these paths can be read and run, only those written; no_new_privs must be set. False: not available."""
    abi = version()
    if not abi:
        return False
    everything = (1 << _FILES_BY_ABI.get(abi, 16)) - 1
    handled = (ctypes.c_uint64 * 3)(everything, _TCP if abi >= 4 else 0, _SCOPES if abi >= 6 else 0)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    rules = kernel.call("landlock_create_ruleset", _CREATE, ctypes.byref(handled), size, 0)
    for path in readable:
        _allow(rules, path, _EXECUTE | _READ_FILE | _READ_DIR)
    for path in writable:
        _allow(rules, path, everything)
    kernel.call("landlock_restrict_self", _RESTRICT, rules, 0)
    os.close(rules)
    return True


def part_from_others() -> bool:
    """A domain of its own for this process and its children: they cannot signal those outside. False: not available."""
    if version() < 6:
        return False
    scopes = (ctypes.c_uint64 * 3)(0, 0, _SCOPES)
    rules = kernel.call("landlock_create_ruleset", _CREATE, ctypes.byref(scopes), 24, 0)
    kernel.call("landlock_restrict_self", _RESTRICT, rules, 0)
    os.close(rules)
    return True


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what is not there needs no permission
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
        rule = (ctypes.c_char * 12).from_buffer_copy(rights.to_bytes(8, "little") + place.to_bytes(4, "little"))
        kernel.call("landlock_add_rule", _ADD, rules, 1, ctypes.byref(rule), 0)
    finally:
        os.close(place)
