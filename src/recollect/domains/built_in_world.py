"""What comes with the package for questions that bring nothing of their own: passages, a policy, a few records."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from recollect.files.yaml import read_mapping
from recollect.types import Task


@cache
def _world() -> dict[str, Any]:
    return read_mapping(Path(__file__).with_name("world.yaml"), "file of the package")


def with_passages(task: Task) -> Task:
    """A question with the package's passages to search."""
    return replace(task, context="\n\n".join(_world()["passages"]))


def with_empty_folder(task: Task) -> Task:
    """A request for a program, to be written in an empty folder."""
    return replace(task, fields={**task.fields, "files": {}})


def with_records(task: Task) -> Task:
    """A customer's request, with the package's policy and records."""
    own = {"policy": _world()["policy"], "database": _world()["database"]}
    return replace(task, fields={**own, **task.fields})
