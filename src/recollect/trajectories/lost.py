"""What a reader did not carry over from its source: every value of a record is somewhere in the unified one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from recollect.trajectories.schema import Record

KEPT = "source_values"


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, value) of every text, number and truth value inside a value; empty texts say nothing."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from leaves(inner, f"{path}.{i}")
    elif value is not None and value != "":
        yield path, value


def same(value: Any) -> tuple[str, Any]:
    """What two leaves have in common that say the same: true is not 1, and 1 is 1.0."""
    if isinstance(value, bool):
        return "truth", value
    return ("text", value) if isinstance(value, str) else ("number", value if value == value else "nan")


def with_lost(source: Record, made: Record) -> Record:
    """The unified record, with what it lacks of its source under ``metadata.source_values``, by path."""
    there = {same(value) for _, value in leaves(made)}
    lost = {path: value for path, value in leaves(source) if same(value) not in there}
    return {**made, "metadata": {**made["metadata"], KEPT: lost}} if lost else made
