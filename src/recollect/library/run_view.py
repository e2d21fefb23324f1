"""A run directory, to be read: its metrics, its trajectories, its report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recollect.config import Config
from recollect.config.compose import from_yaml
from recollect.files.reading import read_json
from recollect.files.yaml import read_yaml
from recollect.library.row_list import Rows
from recollect.runs.directory import RunDirectory as Directory
from recollect.trajectories.stored_rows import read_trajectories
from recollect.types import BadInput


class Run:
    """What a run has left in its directory.

    >>> import recollect, tempfile
    >>> folder = tempfile.mkdtemp() + "/run"
    >>> _ = recollect.train(settings={"trainer.total_training_steps": 0, "evaluation.lengths": [1],
    ...     "evaluation.tasks": [2], "data.val_max_samples": 2}, out=folder, quiet=True)
    >>> [row["step"] for row in recollect.Run(folder).metrics()]
    [0, 0]
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()
        if not (self.path / "config.yaml").is_file():
            raise BadInput(f"{self.path} is no run directory: it has no config.yaml")

    @property
    def config(self) -> Config:
        """The settings of the run."""
        path = self.path / "config.yaml"
        return from_yaml(read_yaml(path, "configuration"), str(path))

    def metrics(self) -> Rows:
        """A row for each step and each validation, in order."""
        return Rows(Directory(self.path).metrics())

    def trajectories(self, step: int | None = None) -> Rows:
        """The stored attempts of a step, or of all steps."""
        name = "step-*.jsonl.zst" if step is None else f"step-{step:06d}.jsonl.zst"
        files = sorted((self.path / "trajectories").glob(name))
        if step is not None and not files:
            raise BadInput(f"{self.path} has no trajectories of step {step}")
        return Rows(row for file in files for row in read_trajectories(file))

    @property
    def report(self) -> dict[str, Any]:
        """The report, once the run has one."""
        path = self.path / "report.json"
        if not path.is_file():
            raise BadInput(f"{self.path} has no report yet")
        found: dict[str, Any] = read_json(path)
        return found

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"
