"""Reading stored attempts: run directories, their `.jsonl.zst` files, and files of trajectories.

Files may be unified or in any form that `recollect convert` reads: one object, a list, or one in each line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from recollect.files.reading import open_file, parse_json, read_json
from recollect.files.rows import expand, read_rows
from recollect.files.unpacking import unpacked_lines
from recollect.registries import DOMAINS
from recollect.trajectories.codec import Row
from recollect.trajectories.collection import members
from recollect.trajectories.field_names import NotATrajectory
from recollect.trajectories.stored_images import located
from recollect.trajectories.unify import unify
from recollect.types import BadInput

STORED = ".jsonl.zst"  # trajectories as a run stores them
STEP = frozenset(("role", "tool", "action"))  # one of them is in every step of an attempt


def is_trajectory(row: Mapping[str, Any]) -> bool:
    """True for a stored attempt: it has turns, actions beside what was asked, or steps of some agent."""
    return isinstance(row.get("turns"), list) or ("actions" in row and "question" in row) or _has_steps(row)


def _has_steps(row: Mapping[str, Any]) -> bool:
    lists = (row.get(name) for name in ("actions", "steps", "trajectory"))
    return any(
        isinstance(steps, list) and any(isinstance(s, Mapping) and s.keys() & STEP for s in steps) for steps in lists
    )


def unified(place: str, row: Row) -> Row:
    """An attempt of another system in unified form; every other row as it is."""
    if isinstance(row.get("turns"), list) or isinstance(row.get("messages"), list) or not is_trajectory(row):
        return row
    path = Path(place.partition(", ")[0])
    folder = path.parent.name if row.get("domain") is None and path.parent.name in DOMAINS else None
    try:
        return unify(row, folder, path.name.partition(".")[0])
    except NotATrajectory as error:
        if "actions" in row and isinstance(row.get("question"), str):  # it says enough without a domain
            return row
        raise BadInput(f"{place}: {error}") from None


def trajectory_rows(paths: Sequence[str]) -> Iterator[tuple[str, Row]]:
    """(place, row) of every stored trajectory."""
    for name in expand(paths):
        path = Path(name).expanduser()
        if (path / "trajectories").is_dir():
            for file in sorted((path / "trajectories").glob(f"step-*{STORED}")):
                yield from _numbered(file)
        elif path.name.endswith(STORED) and path.is_file():
            yield from _numbered(path)
        elif path.is_dir():
            files = sorted(str(f) for f in path.rglob("*") if f.suffix in (".json", ".jsonl") and f.name[0] != ".")
            if not files:
                raise BadInput(f"{name} is a folder without trajectories (.json, .jsonl, or a run of recollect)")
            yield from trajectory_rows(files)
        else:
            yield from _file(path)


def _numbered(path: Path) -> Iterator[tuple[str, Row]]:
    for number, row in enumerate(read_trajectories(path), 1):
        yield f"{path}, line {number}", row


def _file(path: Path) -> Iterator[tuple[str, Row]]:
    """Rows of a file, attempts in unified form; a JSON file may also be a single one, or an object of several."""
    for place, row in _rows(path):
        yield place, unified(place, located(row, path.parent))


def _rows(path: Path) -> Iterator[tuple[str, Row]]:
    if path.suffix == ".json" and path.is_file():
        value = read_json(path)
        if isinstance(value, dict):
            inside = members(value)
            yield from ((str(path), row) for row in ([value] if inside is None else inside))
            return
    yield from read_rows(path)


def first_row(path: Path) -> Row | None:
    """The first row of a file."""
    return next((row for _, row in _rows(path)), None)


def holds_trajectories(paths: Sequence[str]) -> bool:
    """True when some files are stored trajectories: runs, folders, or a first row that is one."""
    first = Path(expand(paths)[0]).expanduser()
    if first.is_dir() or first.name.endswith(STORED):
        return True
    row = first_row(first) if first.suffix in (".json", ".jsonl") else None
    return row is not None and is_trajectory(row)


def read_trajectories(path: Path) -> Iterator[Row]:
    """The trajectories of one stored file."""
    with open_file(path, "file of trajectories") as raw:
        for number, line in enumerate(unpacked_lines(raw, path), 1):
            if line.strip():
                row = parse_json(line, str(path), number)
                if not isinstance(row, dict):
                    raise BadInput(f"{path}, line {number}: expected an object, found {type(row).__name__}")
                yield located(row, path.parent)
