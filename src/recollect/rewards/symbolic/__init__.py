"""Whether a LaTeX expression is an answer that equals another, by ``math-verify`` in a process of its own.

Algebra on what a model wrote can take any time and memory, so the process has limits and is replaced when it hits one.
"""

from __future__ import annotations

import importlib.util
import json
import queue
import selectors
import subprocess
import sys
from pathlib import Path

SECONDS = 5.0  # for one comparison, after which the two do not count as equal
START_SECONDS = 60.0
MEMORY = 2 << 30
LONGEST = 500  # characters of an expression that is compared
LONGEST_QUESTION = 4000  # characters of a question that are looked at
PROGRAM = Path(__file__).with_name("compare.py")
WORKERS = 2


class Worker:
    """A process of ``worker.py``, which says whether expressions are equal."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(MEMORY)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        if self._line(START_SECONDS) != b"ready":
            self.stop()
            raise RuntimeError("math-verify did not start")

    def ask(self, gold: str, said: str, question: str) -> bool | None:
        """True or False; None when it did not say, and has to be replaced."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps([gold, said, question]).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            return None
        return {b"1": True, b"0": False}.get(self._line(SECONDS))

    def _line(self, seconds: float) -> bytes:
        out = self.process.stdout
        assert out is not None
        with selectors.DefaultSelector() as ready:
            ready.register(out, selectors.EVENT_READ)
            return out.readline().strip() if ready.select(seconds) else b""

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.communicate()


_free: queue.LifoQueue[Worker | None] = queue.LifoQueue()
for _ in range(WORKERS):
    _free.put(None)  # started when first needed


def same_expression(gold: str, said: str, question: str = "") -> bool:
    """Whether an expression equals the gold one and answers the question. No verdict within the limits is a no."""
    if max(len(gold), len(said)) > LONGEST:
        return False
    if importlib.util.find_spec("math_verify") is None:
        raise RuntimeError("math_equal compares expressions with math-verify: pip install 'recollect-rl[math]'")
    worker = _free.get()
    try:
        worker = worker or Worker()
        verdict = worker.ask(gold, said, question[:LONGEST_QUESTION])
        if verdict is None:
            worker.stop()
            worker = None
        return bool(verdict)
    finally:
        _free.put(worker)
