"""The attempts of an optimisation as a run stores its own: others read, convert and train on them."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

from recollect.runs.directory import RunDirectory
from recollect.types import Group

EACH = 64  # attempts of a file


class AttemptStore:
    """FOLDER/trajectories, written anew: an optimisation that goes on makes its attempts again, from its cache."""

    def __init__(self, folder: Path) -> None:
        self.run, self.groups, self.files = RunDirectory(folder), list[Group](), 0
        self._lock = threading.Lock()
        (folder / "trajectories").mkdir(parents=True, exist_ok=True)
        for path in (folder / "trajectories").glob("attempts-*.jsonl.zst"):
            path.unlink()

    def add(self, group: Group) -> None:
        """One more attempt; full files are written at once. What an optimizer's model said can be learned from."""
        for trajectory in group.trajectories:
            trajectory.turns = [replace(turn, trainable=True) for turn in trajectory.turns]
        with self._lock:
            self.groups.append(group)
            if len(self.groups) >= EACH:
                self._write()

    def write(self) -> None:
        """Write the attempts that are in no file yet."""
        with self._lock:
            if self.groups:
                self._write()

    def _write(self) -> None:
        self.files += 1
        self.run.save_trajectories(f"attempts-{self.files:06d}", self.groups)
        self.groups = []
