"""Starting the trackers of a run, and letting go of them in bounded time."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from recollect.config import Config
from recollect.runs.directory import RunDirectory
from recollect.runs.trackers.chosen_trackers import trackers_of
from recollect.runtime.console import Console

CLOSING = 30.0  # seconds in which all trackers must be done after the run


@contextmanager
def tracking(cfg: Config, run: RunDirectory, console: Console, rows: Path | None = None) -> Iterator[None]:
    """While this is open, the trackers of trainer.logger follow the run's metrics."""
    job = {
        "rows": str(rows or run.metrics_path),
        "project": cfg.trainer.project_name,
        "experiment": cfg.trainer.experiment_name,
        "config": asdict(cfg),
    }
    folder = run.path / "trackers"
    named = [(name, folder / re.sub(r"[^\w.-]", "_", name)) for name in trackers_of(cfg.trainer.logger)]
    made = [Process(name, {**job, "folder": str(place)}, console) for name, place in named]
    seconds = CLOSING
    try:
        yield
    except KeyboardInterrupt:  # stop now: they finish by themselves
        seconds = 0.0
        raise
    finally:
        deadline = time.monotonic() + seconds
        for process in made:
            process.let_go()
        for process in made:
            if seconds:
                process.close(deadline)


class Process:
    """One tracker at work in its own process (`worker.py`)."""

    def __init__(self, name: str, job: dict[str, Any], console: Console) -> None:
        self.name, self.warn, self.say, self.told = name, console.warn, console.say, False
        self.process = subprocess.Popen(
            [sys.executable, "-m", "recollect.runs.trackers.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is the run's to handle
        )
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps({**job, "tracker": name}) + "\n")
            self.process.stdin.flush()
        except OSError as error:
            self._failed(str(error))
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()

    def let_go(self) -> None:
        """There are no more rows: the tracker finishes by itself."""
        assert self.process.stdin is not None
        with suppress(OSError):  # it may be gone already, and has said why
            self.process.stdin.close()

    def close(self, deadline: float) -> None:
        """Wait until then, at most."""
        try:
            self.process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.told = True
            self.warn(f"tracker {self.name} did not finish within {CLOSING:.0f} s and was left behind")
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.listener.join(1)

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if "failed" in message:
                self._failed(message["failed"])
            else:
                self.say(message["say"])
        code = self.process.wait()
        if code:
            self._failed(f"exit code {code}")

    def _failed(self, why: str) -> None:
        if self.told:
            return
        self.told = True
        self.warn(f"tracker {self.name} stopped ({why}); training goes on, metrics.jsonl has every row")
