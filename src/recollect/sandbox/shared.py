"""The sandbox of this process, for code without a configuration at hand: rewards that run programs."""

from __future__ import annotations

import atexit
import threading
from dataclasses import replace

from recollect.config import Sandbox
from recollect.runtime.work_place import place
from recollect.sandbox.pool import Pool

_lock = threading.Lock()
_settings = Sandbox()
_pools: dict[str, Pool] = {}  # by settings; one that others may be using is not closed under them


def configure(cfg: Sandbox) -> None:
    """Use these limits from now on."""
    global _settings
    with _lock:
        _settings = replace(cfg)


def pool() -> Pool:
    """The process's own warm sandbox, made when it is first asked for."""
    with _lock:
        key = repr(_settings)
        if key not in _pools:
            _pools[key] = Pool(_settings)
        return _pools[key]


async def run_python(code: str, stdin: str = "", timeout: float | None = None) -> tuple[int, str, str]:
    """(exit status, stdout, stderr) of a Python program in a session of its own; a passed limit is never status 0."""
    there = place()
    ran = await (pool().run(code, stdin, timeout) if there is None else there.run_program(code, stdin, timeout))
    if ran.outcome in ("ok", "error"):
        return ran.code, ran.out, ran.err
    return ran.code or -9, ran.out, f"{ran.err}\nstopped by a limit: {ran.outcome}".lstrip()


@atexit.register
def _close() -> None:
    for made in _pools.values():
        made.close()
