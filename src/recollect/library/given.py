"""What users hand over from Python, as settings: rows become files, functions become names."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from recollect.files.output import write_atomic
from recollect.runtime.plugins import give
from recollect.types import BadInput, Task


def files_of(tasks: Any, folder: Path, key: str) -> list[str]:
    """The files of some tasks: those that are named, or one that is written from rows, named by what is in it."""
    if isinstance(tasks, str | Path):
        return [str(tasks)]
    rows = list(rows_of(tasks, key))
    if rows and all(isinstance(row, str | Path) for row in rows):
        return [str(row) for row in rows]
    if not rows:
        raise BadInput(f"{key} holds no tasks")
    text = "".join(_line(row, number, key) for number, row in enumerate(rows, 1))
    path = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.jsonl"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text)
    return [str(path)]


def rows_of(tasks: Any, key: str) -> Iterable[Any]:
    """The rows of a list, a generator, a Hugging Face data set, a pandas frame or a pyarrow table."""
    if hasattr(tasks, "to_pylist"):  # pyarrow
        return tasks.to_pylist()
    if hasattr(tasks, "to_dict") and hasattr(tasks, "columns"):  # pandas
        return [{str(name): value for name, value in row.items()} for row in tasks.to_dict("records")]
    if isinstance(tasks, Mapping) or not isinstance(tasks, Iterable):
        kind = "splits; pick one, such as dataset['train']" if isinstance(tasks, Mapping) else type(tasks).__name__
        raise BadInput(f"{key} is {kind}: give rows, a table, a data set or file names")
    return tasks


def _line(row: Any, number: int, key: str) -> str:
    if isinstance(row, Task):
        row = {
            **row.fields,
            "id": row.id,
            "question": row.question,
            "answer": list(row.answers),
            "source": row.source,
        } | ({} if row.context is None else {"context": row.context})
    if not isinstance(row, Mapping):
        raise BadInput(f"{key}, row {number}: expected a mapping, found {type(row).__name__}")
    try:
        return json.dumps({str(name): _plain(value) for name, value in row.items()}, ensure_ascii=False) + "\n"
    except (TypeError, ValueError) as error:
        raise BadInput(f"{key}, row {number} cannot be written as JSON: {error}") from None


def _plain(value: Any) -> Any:
    """A value of an array library as Python's own; nan, which pandas has for nothing, is None."""
    if hasattr(value, "tolist") and not isinstance(value, str | bytes):
        value = value.tolist()
    if isinstance(value, float) and value != value:
        return None
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def name_of(function: str | Callable[..., Any], key: str) -> str:
    """A function's name for a setting: ``module:function`` where that finds it, else one that this process knows."""
    if isinstance(function, str):
        return function
    if not callable(function):
        raise BadInput(f"{key} is {type(function).__name__}: give a function or its name")
    module, name = getattr(function, "__module__", ""), getattr(function, "__name__", type(function).__name__)
    home = sys.modules.get(module)
    if module not in ("", "__main__") and getattr(home, "__file__", None) and getattr(home, name, None) is function:
        return f"{module}:{name}"
    return give(name, function)
