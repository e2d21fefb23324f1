"""Write made-up tasks to files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recollect.config import Config
from recollect.data.datasets import new_file, write_rows
from recollect.domains.families import made_up
from recollect.types import BadInput, Task


def task_row(task: Task) -> dict[str, Any]:
    """A task as a data row that reads back as the same task."""
    row: dict[str, Any] = {"id": task.id, "data_source": task.source, **task.fields, "context": task.context}
    if "questions" not in row:
        row |= {"question": task.question, "answer": list(task.answers)}
    return row


def write_made_up(cfg: Config, target: Path, count: int, multiple: int = 1, held_out: bool = False) -> int:
    """Write the first tasks of a family, from its training or its held-out set; returns how many there are."""
    target = new_file(target)
    if count < 1:
        raise BadInput(f"--count {count} must be positive")
    if multiple < 1 or (multiple > 1 and not held_out):
        raise BadInput(f"--multiple {multiple} must be positive, and goes with --held-out")
    family = made_up(cfg)
    make = lambda i: family.held_out(cfg, multiple, i) if held_out else family.train(cfg, 10**9, i)
    return write_rows((task_row(make(i)) for i in range(count)), target)
