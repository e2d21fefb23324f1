"""``recollect data NAME SRC DST``: data sets in their original form become task files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from recollect.data.gsm8k import calculations, gsm8k_row
from recollect.data.hotpotqa import hotpotqa_row
from recollect.data.splits import SHARES, split_of
from recollect.files.output import refuse_output, writing
from recollect.files.rows import expand, read_rows
from recollect.types import BadInput

Converter = Callable[[Mapping[str, Any], str, int], dict[str, Any]]
DATASETS: dict[str, Converter] = {"gsm8k": gsm8k_row, "hotpotqa": hotpotqa_row}
SUFFIXES = (".json", ".jsonl", ".parquet")
BATCH = 64  # rows of a parquet file that are held at once


def convert(
    name: str,
    source: str,
    target: str | Path,
    split: str | None = None,
    shares: Sequence[float] = SHARES,
    most: int | None = None,
) -> int:
    """Write a data set's tasks to a new file, in the format that its suffix names; returns how many there are.

    With a ``split`` only the tasks of that part; parts share no question. ``most`` keeps GSM8K's problems with at most
    so many calculations.
    """
    if name not in DATASETS:
        raise BadInput(f"no data set {name}; known: {', '.join(DATASETS)}")
    target = new_file(target)
    rows: list[dict[str, Any]] = []
    for path in expand([source]):
        rows += [DATASETS[name](row, place, len(rows) + i) for i, (place, row) in enumerate(read_rows(path))]
    if not rows:
        raise BadInput(f"no rows in {source}")
    if split is not None:
        asked = [row["question"] for row in rows]
        parts = split_of(asked, [(question, i) for i, question in enumerate(asked)], shares)
        rows = [row for row, part in zip(rows, parts, strict=True) if part == split]
        if not rows:
            raise BadInput(f"--split {split}: no question of {source} falls in it; change --shares")
    if most is not None:
        rows = [row for row in rows if 1 <= calculations(row["solution"]) <= most]
        if not rows:
            raise BadInput(f"--calculations {most}: no problem of {source} has so few")
    write_rows(rows, target)
    return len(rows)


def new_file(target: str | Path) -> Path:
    """Where a new file of rows may be written."""
    target = Path(target).expanduser()
    if target.suffix not in SUFFIXES:
        raise BadInput(f"{target}: the new file ends in {', '.join(SUFFIXES)}")
    if target.exists():
        raise BadInput(f"{target} is there already; remove it or give another name")
    refuse_output(target, str(target))
    return target


def write_rows(rows: Iterable[Mapping[str, Any]], target: Path, schema: Any = None) -> int:
    """A new file of rows; it appears whole or not at all, and never replaces another. Returns how many there are.

    With a ``schema`` (of pyarrow) a parquet file is written as the rows come; else its columns are found from all rows.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.stem}-{os.getpid()}{target.suffix}")
    count = Counting(rows)
    try:
        with writing(target):
            (_write_parquet if target.suffix == ".parquet" else _write_json)(count, part, schema)
        target.open("x").close()
        os.replace(part, target)
    except FileExistsError:
        raise BadInput(f"{target} is there already; remove it or give another name") from None
    finally:
        part.unlink(missing_ok=True)
    return count.seen


class Counting:
    """An iterable that counts what was taken."""

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self.rows, self.seen = rows, 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for row in self.rows:
            self.seen += 1
            yield dict(row)


def _write_parquet(rows: Iterable[dict[str, Any]], path: Path, schema: Any) -> None:
    import pyarrow
    import pyarrow.parquet as parquet

    if schema is None:
        parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path)
        return
    left = iter(rows)
    with parquet.ParquetWriter(path, schema) as writer:
        while batch := list(islice(left, BATCH)):
            writer.write_table(pyarrow.Table.from_pylist(batch, schema))


def _write_json(rows: Iterable[dict[str, Any]], path: Path, schema: Any) -> None:
    as_list = path.suffix == ".json"
    with path.open("w", encoding="utf-8") as file:
        file.write("[\n" if as_list else "")
        for i, row in enumerate(rows):
            file.write((",\n" if as_list else "\n") if i else "")
            file.write(json.dumps(row, ensure_ascii=False))
        file.write("\n]\n" if as_list else "\n")
