"""How long a task's document is, for results by length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recollect.data.questions import given_chunks
from recollect.types import Task

NAMES = ("length", "num_docs", "sections")  # fields of a data row that say it


def length_of(task: Task) -> int:
    """The length in the data row, else the number of given chunks, else characters rounded up to a power of four."""
    extra = task.fields.get("extra_info")
    for row in (task.fields, extra if isinstance(extra, Mapping) else {}):
        for name in NAMES:
            if isinstance(row.get(name), int):
                return int(row[name])
    if given_chunks(task.context) is not None:
        return len(task.context)
    return _bucket(len(task.context)) if isinstance(task.context, str) else 0


def _bucket(count: int) -> int:
    size = 1
    while size < count:
        size *= 4
    return size


def by_length(rows: list[Any], lengths: list[int]) -> dict[int, list[Any]]:
    """Rows of equal length together, short ones first."""
    out: dict[int, list[Any]] = {}
    for length, row in sorted(zip(lengths, rows, strict=True), key=lambda pair: pair[0]):
        out.setdefault(length, []).append(row)
    return out
