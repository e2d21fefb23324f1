"""What the file or folder of ``--context`` becomes in a task."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from recollect.config import Config
from recollect.files.reading import MOST_TEXT, read_text
from recollect.types import BadInput, Task


def given_text(task: Task, path: Path) -> str:
    """The text of one file; a folder is refused."""
    if path.is_dir():
        raise BadInput(f"--context {path} is a folder; {task.source} reads one file")
    return read_text(path, MOST_TEXT, "context", "replace")


def as_document(task: Task, path: Path, cfg: Config) -> Task:
    """The task with the file as its document."""
    return replace(task, context=given_text(task, path))
