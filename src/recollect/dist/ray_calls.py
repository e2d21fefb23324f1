"""Plain functions as tasks on the CPUs of a Ray cluster: each call has a process of its own while it lasts.

A task whose process or node is lost is made again. A call that nobody waits for any more is ended with its process.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from recollect.runtime.error_text import error_text
from recollect.runtime.plugins import OF_FILES
from recollect.runtime.threads import contained
from recollect.types import BadInput

SHARE = 0.5  # of a CPU; many calls wait for something most of the time
AGAIN = 2  # times that a task is made again when its process is lost

_loaded: dict[str, Callable[..., Any]] = {}  # in the process of a task: functions by digest


class RayCalls:
    """Calls functions on the cluster that this process has joined."""

    def __init__(self) -> None:
        import ray

        self._task: Any = ray.remote(num_cpus=SHARE, max_retries=AGAIN, retry_exceptions=False)(run_there)
        self._sent: dict[int, tuple[Callable[..., Any], str, Any]] = {}

    def send(self, function: Callable[..., Any], name: str) -> None:
        """Put a function where tasks find it; BadInput when it cannot be sent."""
        import ray
        from ray import cloudpickle

        for module in [module for known, module in sys.modules.items() if known.startswith(OF_FILES)]:
            cloudpickle.register_pickle_by_value(module)
        try:
            data = cloudpickle.dumps(function)
        except Exception as error:
            raise BadInput(f"{name} cannot be sent to a Ray cluster ({error_text(error)}); set agent.run_on=driver") from None
        self._sent[id(function)] = function, hashlib.sha256(data).hexdigest(), ray.put(data)

    def knows(self, function: Callable[..., Any]) -> bool:
        """Whether a function was sent."""
        return id(function) in self._sent

    async def call(self, function: Callable[..., Any], given: Mapping[str, Any]) -> Any:
        """What a function gives. An error has the name and the text of the one that it raised there."""
        import ray
        from ray.exceptions import RayError

        _, digest, data = self._sent[id(function)]
        task = self._task.remote(data, digest, (os.getcwd(), *sys.path), dict(given))
        try:
            done, value = await task
        except asyncio.CancelledError:
            with suppress(RayError, ValueError):
                ray.cancel(task, force=True)
            raise
        except RayError as error:
            raise ClusterFailed(f"it could not be computed on the cluster: {last_line(error)}") from None
        if not done:
            raise type(value[0], (ClusterFailed,), {})(value[1])
        return value


class ClusterFailed(RuntimeError):
    """What went wrong with a call on the cluster."""


def run_there(data: bytes, digest: str, folders: Sequence[str], given: dict[str, Any]) -> tuple[bool, Any]:
    """In a task: call a function; whether it gave something, and what, or the name and text of its error."""
    try:
        for folder in folders:
            if folder not in sys.path:
                sys.path.append(folder)
        if os.path.isdir(folders[0]):
            os.chdir(folders[0])
        if digest not in _loaded:
            from ray import cloudpickle

            _loaded[digest] = cloudpickle.loads(data)
        with contained():
            return True, _loaded[digest](**given)
    except (Exception, KeyboardInterrupt) as error:
        return False, (type(error).__name__, str(error))


def last_line(error: object) -> str:
    """What an error of Ray's says at the end of its pages."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__
