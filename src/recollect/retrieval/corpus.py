"""Passages from a folder of text files or from a file of rows, and a fingerprint that changes when they do."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recollect.files.reading import read_text
from recollect.files.rows import expand, read_rows
from recollect.runtime.error_text import listed
from recollect.tasks import facts
from recollect.types import BadInput

TEXT_SUFFIXES = (".txt", ".md", ".rst")
ROW_SUFFIXES = (".jsonl", ".ndjson", ".json", ".parquet", ".csv", ".tsv")
TEXT_NAMES = ("text", "contents", "content", "passage", "body")
PASSAGE = 1000  # characters of a passage that is cut from a text file
_TITLE = re.compile(r'\s*"([^"\n]+)"\s*\n')


@dataclass(frozen=True)
class Passage:
    """What a search finds."""

    title: str
    text: str


MADE_UP_CORPUS = "made_up"  # the corpus of the made-up task family `facts`, which needs no file


def files_of(corpus: str) -> list[Path]:
    """The files of a corpus: those of a folder, or the one (or the pattern) that is named."""
    place = Path(corpus).expanduser()
    if place.is_dir():
        known = (*TEXT_SUFFIXES, *ROW_SUFFIXES)
        found = sorted(p for p in place.rglob("*") if p.is_file() and p.suffix in known)
    else:
        found = [Path(p).expanduser() for p in expand([corpus])]
    if not found or not all(p.is_file() for p in found):
        raise BadInput(f"search.corpus={corpus}: no folder with text files and no file of passages is there")
    return found


def fingerprint(corpus: str) -> str:
    """A name for the state of a corpus: its files with their sizes and times of change."""
    digest = hashlib.blake2b(digest_size=10)
    if corpus == MADE_UP_CORPUS:
        digest.update("\n".join(facts.passages()).encode())
        return digest.hexdigest()
    for path in files_of(corpus):
        state = path.stat()
        digest.update(f"{path.resolve()}\0{state.st_size}\0{state.st_mtime_ns}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def passages(corpus: str) -> Iterator[Passage]:
    """All passages, in order of files and rows."""
    if corpus == MADE_UP_CORPUS:
        yield from (Passage("", text) for text in facts.passages())
        return
    for path in files_of(corpus):
        if path.suffix in TEXT_SUFFIXES:
            yield from _of_text(path)
        else:
            for place, row in read_rows(path):
                yield _of_row(row, place)


def _of_row(row: Mapping[str, Any], place: str) -> Passage:
    text = next((row[name] for name in TEXT_NAMES if row.get(name) is not None), None)
    if not isinstance(text, str):
        raise BadInput(
            f"{place}: a passage needs {', '.join(TEXT_NAMES[:-1])} or {TEXT_NAMES[-1]}; it has {listed(row)}"
        )
    title = row.get("title")
    quoted = _TITLE.match(text) if title is None else None  # Wikipedia dumps of retrievers: "Title" and a line break
    if quoted:
        return Passage(quoted.group(1).strip(), text[quoted.end() :].strip())
    return Passage(str(title or "").strip(), text.strip())


def _of_text(path: Path) -> Iterator[Passage]:
    """Runs of whole paragraphs, each run as long as a passage may be; longer paragraphs are cut at spaces."""
    text = read_text(path, what="text file", errors="replace")
    run = ""
    for paragraph in (p.strip() for p in re.split(r"\n\s*\n", text)):
        for piece in _pieces(paragraph):
            if run and len(run) + 2 + len(piece) > PASSAGE:
                yield Passage(path.stem, run)
                run = ""
            run = f"{run}\n\n{piece}" if run else piece
    if run:
        yield Passage(path.stem, run)


def _pieces(paragraph: str) -> Iterator[str]:
    while len(paragraph) > PASSAGE:
        cut = paragraph.rfind(" ", PASSAGE // 2, PASSAGE)
        cut = PASSAGE if cut < 0 else cut
        yield paragraph[:cut].rstrip()
        paragraph = paragraph[cut:].lstrip()
    if paragraph:
        yield paragraph
