"""``recollect data NAME SRC DST``: data sets in their original form become task files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from recollect.data.files import expand, read_rows
from recollect.data.gsm8k import gsm8k_row
from recollect.data.hotpotqa import hotpotqa_row
from recollect.types import BadInput

Converter = Callable[[Mapping[str, Any], str, int], dict[str, Any]]
DATASETS: dict[str, Converter] = {"gsm8k": gsm8k_row, "hotpotqa": hotpotqa_row}
SUFFIXES = (".json", ".jsonl", ".parquet")


def convert(name: str, source: str, target: str | Path) -> int:
    """Write a data set's tasks to a new file, in the format that its suffix names; returns how many there are."""
    if name not in DATASETS:
        raise BadInput(f"no data set {name}; known: {', '.join(DATASETS)}")
    target = Path(target).expanduser()
    if target.suffix not in SUFFIXES:
        raise BadInput(f"{target}: the new file ends in {', '.join(SUFFIXES)}")
    if target.exists():
        raise BadInput(f"{target} is there already; remove it or give another name")
    rows: list[dict[str, Any]] = []
    for path in expand([source]):
        rows += [DATASETS[name](row, place, len(rows) + i) for i, (place, row) in enumerate(read_rows(path))]
    if not rows:
        raise BadInput(f"no rows in {source}")
    write_rows(rows, target)
    return len(rows)


def write_rows(rows: Sequence[Mapping[str, Any]], target: Path) -> None:
    """A new file of rows; it appears whole or not at all, and never replaces another."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.stem}-{os.getpid()}{target.suffix}")
    try:
        _write(rows, part)
        target.open("x").close()
        os.replace(part, target)
    except FileExistsError:
        raise BadInput(f"{target} is there already; remove it or give another name") from None
    finally:
        part.unlink(missing_ok=True)


def _write(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    if path.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet as parquet

        parquet.write_table(pyarrow.Table.from_pylist([dict(r) for r in rows]), path)
        return
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    text = "[\n" + ",\n".join(lines) + "\n]\n" if path.suffix == ".json" else "\n".join(lines) + "\n"
    path.write_text(text, encoding="utf-8")
