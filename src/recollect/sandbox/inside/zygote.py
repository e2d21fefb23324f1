"""The process from which sessions are forked: it has entered the box and loaded Python before anybody asks.

It runs no program itself. Where the kernel lets it, every session gets user, process and mount namespaces of its own
inside the box; where it does not, the host gives each session a box of its own.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import select
import signal
import site
import socket
import sys
from typing import Any

from recollect.sandbox.inside import kernel, unsafe, usage, view, wire
from recollect.sandbox.inside.keeper import keep

SESSION = kernel.NEWUSER | kernel.NEWPID | kernel.NEWNS


def main(fd: int) -> None:
    """Set up a box as the plan that comes first says, and serve it until the host is gone."""
    host = socket.socket(fileno=fd)
    try:
        plan = json.loads(host.recv(1 << 20))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        own = unsafe.enter(plan) if plan["method"] == "none" else []
        if plan["method"] == "namespaces":
            view.enter(plan)
        sys.path[:] = [p for p in sys.path if p not in plan["hidden"]] + plan["site"]
        sys.dont_write_bytecode = True
        site.setquit()
        for name in plan["preload"]:
            importlib.import_module(name)
        gc.collect()
        gc.freeze()
        nested = plan["method"] != "none" and _walls(plan, True) is not None
        if not nested and plan["own_folders"]:
            if plan["method"] == "bubblewrap":
                kernel.unshare(kernel.NEWNS)  # its own mounts belong to a user namespace that we have left
            view.private_folders(plan)
        standing = _walls(plan, nested)
        if standing is None:
            raise RuntimeError("a session does not start")
        host.send(json.dumps({"nested": nested, "walls": [*own, *standing]}).encode())
    except BaseException as error:
        host.send(json.dumps({"failed": f"{type(error).__name__}: {error}"}).encode())
        os._exit(1)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)  # a session of the same user cannot look into this process
    _serve(host, plan, nested)
    os._exit(0)


def _walls(plan: dict[str, Any], nested: bool) -> list[str] | None:
    """What a trial session says of its walls; None when it cannot be made."""
    here, there = socket.socketpair()
    try:
        _start(there, plan, nested, [here.fileno()], check=True)
        there.close()
        head = here.recv(wire.HEAD)
        said = wire.unpack(here.recv(wire.size(head))) if len(head) == wire.HEAD else {}
        return said.get("walls")
    except OSError:
        return None
    finally:
        here.close()
        there.close()


def _start(sock: socket.socket, plan: dict[str, Any], nested: bool, shut: list[int], check: bool = False) -> int:
    uid, gid = os.getuid(), os.getgid()
    pid = kernel.fork_into(SESSION) if nested else os.fork()
    if pid:
        return pid
    try:
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for fd in shut:
            os.close(fd)
        if nested:
            view.enter_session(uid, gid, plan)
    except BaseException:
        os._exit(1)
    keep(sock, plan, nested, check)
    os._exit(0)


def _serve(host: socket.socket, plan: dict[str, Any], nested: bool) -> None:
    """Fork a session for every socket that comes, end one when told to, and bury the dead."""
    sessions: dict[int, tuple[int, int]] = {}  # number → its keeper, and a descriptor of it, which is never used again
    waker, wake = socket.socketpair()
    waker.setblocking(False)
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([host, waker], [], [])
        if waker in ready:
            waker.recv(4096)
        if host in ready:
            data, fds, _, _ = socket.recv_fds(host, 4096, 1)
            if not data:
                return
            number = json.loads(data)["session"]
            if fds:
                with socket.socket(fileno=fds[0]) as sock:
                    shut = [host.fileno(), waker.fileno(), wake.fileno(), *(fd for _, fd in sessions.values())]
                    with contextlib.suppress(OSError):  # then the socket closes, and the host sees it
                        pid = _start(sock, plan, nested, shut)
                        sessions[number] = pid, os.pidfd_open(pid)
            elif number in sessions:
                _end(*sessions.pop(number), nested)
        usage.reap()


def _end(pid: int, keeper: int, nested: bool) -> None:
    """End a session; without a namespace of its own, what runs below its keeper does not end with it."""
    alive = not select.select([keeper], [], [], 0)[0]
    if alive and not nested:
        usage.end_all(pid)
    with contextlib.suppress(OSError):  # it may be gone already
        signal.pidfd_send_signal(keeper, signal.SIGKILL)
    os.close(keeper)
