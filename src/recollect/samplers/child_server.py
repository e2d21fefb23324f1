"""A server that this process runs for a role (`serve:DIR`): started, waited for, and stopped, also when we are killed.

The server reads its standard input and ends when that closes, which it does however this process ends.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from contextlib import suppress
from queue import Empty, Queue

from recollect.types import BadInput

START_S = 600.0  # a large model takes its time to load
STOP_S = 10.0


class Served:
    """A running `recollect serve` of one model."""

    def __init__(self, path: str, template: str | None = None) -> None:
        self.path = path
        command = [sys.executable, "-m", "recollect", "serve", "--checkpoint", path, "--port", "0", "--child"]
        command += [f"agent.template={template}"] if template else []
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._errors: list[str] = []
        self._lines: Queue[str] = Queue()
        for stream, take in ((self.process.stdout, self._lines.put), (self.process.stderr, self._errors.append)):
            threading.Thread(target=_drain, args=(stream, take), daemon=True).start()
        try:
            self.url = self._address()
        except BaseException:
            self.stop()
            raise

    def _address(self) -> str:
        """The address that the server says once it is healthy."""
        waited = 0.0
        while waited < START_S:
            with suppress(Empty):
                line = self._lines.get(timeout=0.2)
                with suppress(ValueError, KeyError, TypeError):
                    return str(json.loads(line)["url"])
            waited += 0.2
            if self.process.poll() is not None and self._lines.empty():
                said = " ".join("".join(self._errors).split())[-300:]
                raise BadInput(f"the server for {self.path} did not start: {said or self.process.returncode}")
        raise BadInput(f"the server for {self.path} was not ready within {START_S:g} s")

    def stop(self) -> None:
        """End the server."""
        with suppress(OSError):
            if self.process.stdin is not None:
                self.process.stdin.close()
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _drain(stream: object, take: object) -> None:
    for line in stream:  # type: ignore[attr-defined]
        take(line)  # type: ignore[operator]
