"""A corpus to search in, from the paragraphs of files in SQuAD's or HotpotQA's format, each once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from recollect.data.datasets import new_file, write_rows
from recollect.data.hotpotqa import hotpotqa_row
from recollect.data.squad import read_squad
from recollect.files.reading import read_json
from recollect.files.rows import expand, read_rows
from recollect.types import BadInput


def write_passages(sources: Sequence[str], target: Path) -> int:
    """Write a new file of passages."""
    target, found = new_file(target), dict[str, str]()  # title by text
    for path in expand(sources):
        for title, text in _paragraphs(path):
            found.setdefault(text, title)
    if not found:
        raise BadInput(f"{', '.join(sources)} holds no paragraph")
    rows = ({"id": str(i), "title": title, "text": text} for i, (text, title) in enumerate(found.items()))
    return write_rows(rows, target)


def _paragraphs(path: str) -> Iterator[tuple[str, str]]:
    """(title, text) of each paragraph of a file."""
    if not _is_squad(Path(path).expanduser()):
        for i, (place, row) in enumerate(read_rows(path)):
            yield from ((p["title"], p["text"]) for p in hotpotqa_row(row, place, i)["paragraphs"] if p["text"])
        return
    found = read_squad([path])
    yield from zip(found.titles, found.texts, strict=True)


def _is_squad(path: Path) -> bool:
    """HotpotQA's files hold rows: a list, or a file with a row in each line."""
    if path.suffix != ".json":
        return False
    try:
        found: Any = read_json(path)
    except BadInput as error:
        raise BadInput(f"this is not JSON that can be read: {error}") from None
    return not isinstance(found, list)
