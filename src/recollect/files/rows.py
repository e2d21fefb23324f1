"""Rows of JSON, JSONL, parquet and CSV files, with errors that name file and line."""

from __future__ import annotations

import csv
import glob
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from recollect.files.reading import MB, lines, open_file, parse_json, read_json, refuse_odd
from recollect.runtime.error_text import listed
from recollect.types import BadInput

MOST_CELL = 64 * MB  # characters of a value in a table


def read_rows(path: str | Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, row) for every row of a file; the place is for messages."""
    path = Path(path).expanduser()
    refuse_odd(path)
    if path.suffix == ".parquet":
        yield from _parquet(path)
    elif path.suffix == ".json":
        yield from _json(path)
    elif path.suffix in (".jsonl", ".ndjson"):
        yield from _jsonl(path)
    elif path.suffix in (".csv", ".tsv"):
        yield from _csv(path)
    else:
        raise BadInput(f"{path}: data files end in .json, .jsonl, .parquet, .csv or .tsv")


def expand(paths: Sequence[str]) -> list[str]:
    """Paths with every pattern (``data/*.jsonl``) replaced by the files it matches, in order of their names."""
    found: list[str] = []
    for path in paths:
        place = str(Path(path).expanduser())
        if Path(place).exists() or not glob.has_magic(place):
            found.append(path)
            continue
        matches = sorted(m for m in glob.glob(place, recursive=True) if Path(m).is_file())
        if not matches:
            raise BadInput(f"no data file matches {path}")
        found += matches
    return found


def _json(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    rows = read_json(path)
    if not isinstance(rows, list):
        raise BadInput(f"{path}: expected a JSON array of objects, found {type(rows).__name__}")
    for i, row in enumerate(rows):
        yield f"{path}, row {i + 1}", _object(row, f"{path}, row {i + 1}")


def _jsonl(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(lines(path), 1):
        if line.strip():
            place = f"{path}, line {number}"
            yield place, _object(parse_json(line, str(path), number), place)


def _parquet(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    import pyarrow
    import pyarrow.parquet as parquet

    if path.is_fifo():
        raise BadInput(f"{path} is a pipe, and parquet cannot be read from one; name a file")
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=256):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path}, row {number}", {name: _decoded(value) for name, value in row.items()}
    except BadInput:
        raise
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError, RecursionError, MemoryError) as error:
        what = f"is damaged after row {number}" if number else "is not a parquet file that can be read"
        raise BadInput(f"{path} {what}: {' '.join(str(error).split())[:200]}") from None


def _decoded(value: Any) -> Any:
    """A value with its bytes decoded where they are UTF-8: some writers store texts as bytes."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    if isinstance(value, dict):
        return {name: _decoded(inner) for name, inner in value.items()}
    return [_decoded(inner) for inner in value] if isinstance(value, list) else value


def _csv(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows of a table whose first line names the columns. Every value is a text; empty ones are left out."""
    csv.field_size_limit(MOST_CELL)
    with open_file(path) as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter="\t" if path.suffix == ".tsv" else ",", strict=True)
        try:
            names = next(reader, [])
            if len(set(names)) < len(names) or not all(n.strip() for n in names):
                raise BadInput(f"{path}, line 1: the columns need names that differ; it has {listed(names)}")
            for cells in reader:
                place = f"{path}, line {reader.line_num}"
                if len(cells) != len(names) and cells:
                    raise BadInput(f"{place}: {len(cells)} values for {len(names)} columns")
                if cells:
                    yield place, {n: c for n, c in zip(names, cells, strict=True) if c}
        except csv.Error as error:
            raise BadInput(f"{path}, line {reader.line_num}: broken CSV: {error}") from None
        except UnicodeDecodeError as error:
            raise BadInput(f"{path} is not UTF-8 (byte {error.start})") from None


def _object(row: Any, place: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise BadInput(f"{place}: expected an object, found {type(row).__name__}")
    return row


def agent_of_rows(paths: Sequence[str]) -> str | None:
    """The agent that the first row of some files names under ``agent_name``; None if there is none."""
    try:
        _, row = next(iter(read_rows(expand(paths)[0])))
    except (BadInput, OSError, ValueError, StopIteration):
        return None  # what is wrong with the files is said when they are read
    name = row.get("agent_name")
    return name if isinstance(name, str) and name.strip() else None
