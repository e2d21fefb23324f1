"""Paragraphs on disk, and documents that are made of them while they are read: no item holds its text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from recollect.types import BadInput

TEXTS, ENDS = ".paragraphs", ".paragraphs.npy"


class Paragraphs:
    """A file of texts, one after another, and where each ends. Nothing is read but what is asked for."""

    def __init__(self, path: Path) -> None:
        if not path.is_file() or not path.with_name(path.name + ".npy").is_file():
            raise BadInput(f"no paragraphs at {path}; it and {path.name}.npy belong to the data file")
        self.path = path
        ends = path.with_name(path.name + ".npy")
        try:
            self.ends: Any = np.load(ends, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise BadInput(f"{ends} is damaged: {error}") from None
        if self.ends.ndim != 1 or self.ends.dtype.kind != "i":
            raise BadInput(f"{ends} does not say where paragraphs end")

    def __len__(self) -> int:
        return len(self.ends)

    def read(self, ids: Sequence[int]) -> Iterator[str]:
        """Some of the texts, in the order asked for."""
        with self.path.open("rb") as file:
            for i in ids:
                start = int(self.ends[i - 1]) if i else 0
                file.seek(start)
                yield file.read(int(self.ends[i]) - start).decode()


def write_paragraphs(texts: Iterable[str], path: Path) -> None:
    """Write texts to a new file."""
    ends, at = [], 0
    with path.open("wb") as file:
        for text in texts:
            at += file.write(text.encode())
            ends.append(at)
    np.save(path.with_name(path.name + ".npy"), np.array(ends, np.int64))


@cache
def open_paragraphs(path: Path) -> Paragraphs:
    """The paragraphs of a file, opened once."""
    return Paragraphs(path)


@dataclass(frozen=True)
class Haystack:
    """A document of numbered paragraphs, named by their indices."""

    path: Path
    ids: tuple[int, ...]

    def pieces(self) -> Iterator[str]:
        """The text, paragraph by paragraph."""
        for number, text in enumerate(open_paragraphs(self.path).read(self.ids), 1):
            yield document_text(number, text)


def document_text(number: int, text: str) -> str:
    """A paragraph as it stands in a document."""
    return f"{'' if number == 1 else chr(10) * 2}Document {number}:\n{text}"


def streamed(row: Any, place: str) -> Haystack | None:
    """The document of a data row that holds indices instead of text; None for any other row."""
    named, ids = row.get("paragraphs_file"), row.get("paragraph_ids")
    if not named or ids is None:
        return None
    path = Path(place.rpartition(", ")[0]).parent / str(named)
    known = len(open_paragraphs(path))
    if any(not 0 <= i < known for i in ids):
        raise BadInput(f"{place}: a paragraph is outside of {path}, which has {known}")
    return Haystack(path, tuple(ids))
