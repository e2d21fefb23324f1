"""The walls that a session's keeper puts up around itself, and so around everything that it starts."""

from __future__ import annotations

import contextlib
import os
import resource
from typing import Any

from recollect.sandbox.inside import kernel, landlock, seccomp

MB = 1 << 20


def walls(plan: dict[str, Any], nested: bool, workspace: str) -> list[str]:
    """Limit and confine this process for ever; the names of the walls that stand."""
    limits = plan["limits"]
    for what, amount in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, limits["file_mb"] * MB),
        (resource.RLIMIT_NOFILE, 256),
        (resource.RLIMIT_STACK, 8 * MB),
    ):
        hard = resource.getrlimit(what)[1]
        amount = amount if hard == resource.RLIM_INFINITY else min(amount, hard)
        resource.setrlimit(what, (amount, amount))
    release = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
    if nested and release >= (5, 14):  # counted per user namespace; before, other processes of the user count too
        amount = limits["processes"] + 1
        resource.setrlimit(resource.RLIMIT_NPROC, (amount, amount))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # when memory is out, the kernel ends these processes first
    kernel.drop_capabilities()
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    names = ["rlimits", "no_new_privs"]
    if landlock.install([*plan["readable"], "/proc"], writable(plan, workspace)):
        names.append("landlock")
    if seccomp.install():
        names.append("seccomp")
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    return names


def writable(plan: dict[str, Any], workspace: str) -> list[str]:
    """Where programs may write."""
    return [workspace, *plan["writable"], *(f"/dev/{name}" for name in plan["devices"])]
