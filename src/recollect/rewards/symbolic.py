"""Whether two LaTeX expressions are equal, by ``math-verify`` in a process of its own.

Algebra on what a model wrote can take any time and memory, so the process has limits and is replaced when it hits one.
"""

from __future__ import annotations

import importlib.util
import json
import queue
import selectors
import subprocess
import sys

SECONDS = 5.0  # for one comparison, after which the two do not count as equal
START_SECONDS = 60.0
MEMORY = 2 << 30
LONGEST = 500  # characters of an expression that is compared
WORKERS = 2


class Worker:
    """A process that reads pairs of expressions and says whether they are equal."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        if self._line(START_SECONDS) != b"ready":
            self.stop()
            raise RuntimeError("math-verify did not start")

    def ask(self, gold: str, said: str) -> bool | None:
        """True or False; None when it did not say, and has to be replaced."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps([gold, said]).encode() + b"\n")
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


def same_expression(gold: str, said: str) -> bool:
    """Whether an expression equals the gold one. No verdict within the limits is not equal."""
    if max(len(gold), len(said)) > LONGEST:
        return False
    if importlib.util.find_spec("math_verify") is None:
        raise RuntimeError("math_equal compares expressions with math-verify: pip install 'recollect[math]'")
    worker = _free.get()
    try:
        worker = worker or Worker()
        verdict = worker.ask(gold, said)
        if verdict is None:
            worker.stop()
            worker = None
        return bool(verdict)
    finally:
        _free.put(worker)


_PROGRAM = f"""
import json, logging, resource, sys
logging.disable(logging.CRITICAL)
from math_verify import LatexExtractionConfig, parse, verify
import sympy
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))
def read(text):
    return parse("$" + text + "$", [LatexExtractionConfig()], parsing_timeout=None)
read("1")
print("ready", flush=True)
for line in sys.stdin:
    gold, said = json.loads(line)
    try:
        equal = verify(read(gold), read(said), timeout_seconds=None)
    except Exception:
        equal = False
    print(int(bool(equal)), flush=True)
"""
