"""Files of trajectories in pieces that can be processed independently: lines, values, or several small files.

A piece names bytes of files and holds none, so any number of them is cheap; whoever works on one reads it.
"""

from __future__ import annotations

import glob
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic_core import from_json

from recollect.files.half_characters import WHAT as HALF
from recollect.files.reading import bounded, open_file, refuse_odd
from recollect.trajectories.collection import members
from recollect.trajectories.scan import BLOCK, MAX_RECORD, CutOff, values
from recollect.types import BadInput

Form = Literal["lines", "values", "packed"]
SUFFIXES = (".json", ".jsonl", ".ndjson", ".traj", ".jsonl.zst", ".jsonl.gz", ".json.gz")
LINES = (".jsonl", ".ndjson")
TOGETHER = 256  # small files in one piece of work


@dataclass(frozen=True)
class FilePiece:
    """A part of a file."""

    path: str
    form: Form  # lines; values (whole JSON values and what separates them); packed: a whole compressed file
    start: int = 0
    end: int = -1  # -1: to the end of the file
    first: int = 1  # number of its first line or record
    wrong: str = ""  # why nothing from here on can be read


@dataclass(frozen=True)
class Found:
    """A record, or what was found in its place."""

    path: str
    place: str  # "line 3", "record 2"
    value: Any = None
    wrong: str = ""  # why there is no value

    @property
    def where(self) -> str:
        return f"{self.path}, {self.place}"


def files_of(given: Sequence[str]) -> list[Path]:
    """The files behind names, patterns, folders and run directories, each once, in order."""
    found: dict[Path, None] = {}
    for name in given:
        place = Path(name).expanduser()
        matches = [place] if place.exists() else [Path(p) for p in sorted(glob.glob(str(place), recursive=True))]
        if not matches:
            what = "no file matches" if glob.has_magic(name) else "there is no file or folder"
            raise BadInput(f"{what} {name}")
        for match in matches:
            files = _inside(match) if match.is_dir() else [match]
            if not files:
                raise BadInput(f"{match} is a folder without trajectories ({', '.join(SUFFIXES)})")
            for file in files:
                refuse_odd(file, "file of trajectories")
            found |= dict.fromkeys(files)
    return list(found)


def _inside(folder: Path) -> list[Path]:
    """The trajectory files of a folder; of a run directory those of its training steps."""
    stored = sorted((folder / "trajectories").glob("step-*.jsonl.zst"))
    if (folder / "config.yaml").is_file() and stored:
        return stored
    return sorted(p for p in folder.rglob("*") if p.is_file() and p.name.endswith(SUFFIXES) and p.name[0] != ".")


def units(paths: Sequence[Path]) -> Iterator[list[FilePiece]]:
    """All pieces of some files, in order; small ones together."""
    together: list[FilePiece] = []
    size = 0
    for path in paths:
        length = path.stat().st_size
        if length <= BLOCK:
            together.append(FilePiece(str(path), _form(path)))
            size += length
            if size >= BLOCK or len(together) >= TOGETHER:
                yield together
                together, size = [], 0
            continue
        if together:
            yield together
            together, size = [], 0
        yield from ([piece] for piece in _pieces(path))
    if together:
        yield together


def _form(path: Path) -> Form:
    if path.name.endswith((".zst", ".gz")):
        return "packed"
    return "lines" if path.suffix in LINES else "values"


def _pieces(path: Path) -> Iterator[FilePiece]:
    form = _form(path)
    if form == "packed":
        yield FilePiece(str(path), form)
    elif form == "lines":
        yield from _line_pieces(path)
    else:
        yield from _value_pieces(path)


def _line_pieces(path: Path) -> Iterator[FilePiece]:
    """Cuts of a file of lines, each after a line break; a line that is longer than a block is a piece of its own."""
    with path.open("rb") as file:
        start, at, number, lines = 0, 0, 1, 0
        while block := file.read(BLOCK):
            cut = block.rfind(b"\n")
            if cut >= 0:
                lines += block.count(b"\n")
                yield FilePiece(str(path), "lines", start, at + cut + 1, number)
                start, number = at + cut + 1, 1 + lines
            at += len(block)
    if start < at:
        yield FilePiece(str(path), "lines", start, at, number)


def _value_pieces(path: Path) -> Iterator[FilePiece]:
    """Cuts of a file of JSON values, each between two of them. What cannot be read on from is the last piece."""
    first = count = start = at = 0
    with path.open("rb") as file:
        try:
            for place, text in values(file):
                count += 1
                if first == 0:
                    start, first = place, count
                at = place + len(text)
                if at - start >= BLOCK:
                    yield FilePiece(str(path), "values", start, at, first)
                    first = 0
        except CutOff as error:
            if first:
                yield FilePiece(str(path), "values", start, at, first)
            yield FilePiece(str(path), "values", error.start, -1, count + 1, str(error))
            return
    if first:
        yield FilePiece(str(path), "values", start, at, first)


def records(piece: FilePiece) -> Iterator[Found]:
    """The records of a piece, those of a collection one by one; an unreadable one is reported in its place."""
    for found in _outer(piece):
        inside = members(found.value)
        if inside is None:
            yield found
        else:
            yield from (Found(found.path, f"{found.place}.{i}", value) for i, value in enumerate(inside, 1))


def _outer(piece: FilePiece) -> Iterator[Found]:
    if piece.wrong:
        yield Found(piece.path, f"record {piece.first}, line {piece_line(piece, b'', 0)}", wrong=piece.wrong)
        return
    try:
        if piece.form == "packed":
            yield from _packed(piece)
            return
        with open_file(Path(piece.path)) as file:
            if piece.start:
                file.seek(piece.start)
            data = file.read(MAX_RECORD + 1 if piece.end < 0 else piece.end - piece.start)
        if piece.end < 0 and len(data) > MAX_RECORD:
            raise BadInput(f"more than {MAX_RECORD >> 20} MB came out of a pipe, or of a file that grew meanwhile")
    except BadInput as error:
        yield Found(piece.path, "the file", wrong=str(error))
        return
    except OSError as error:
        yield Found(piece.path, "the file", wrong=f"it cannot be read: {error.strerror or error}")
        return
    if piece.start == 0 and data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        yield Found(piece.path, "the file", wrong="it is UTF-16, not UTF-8; convert it first, e.g. with iconv")
        return
    yield from _lines(piece, data) if piece.form == "lines" else _values(piece, data)


def _lines(piece: FilePiece, data: bytes) -> Iterator[Found]:
    for number, line in enumerate(data.split(b"\n"), piece.first):
        if number == 1 and line.startswith(b"\xef\xbb\xbf"):
            line = line[3:]
        if line and not line.isspace():
            yield parsed(piece.path, f"line {number}", line)


def _values(piece: FilePiece, data: bytes) -> Iterator[Found]:
    """The values of a piece. A file that is one list of messages is one conversation."""
    number = piece.first - 1
    messages: list[Any] = []
    try:
        for _, text in values(io.BytesIO(data)):
            number += 1
            found = parsed(piece.path, f"record {number}", text)
            if piece.first == 1 and len(messages) == number - 1 and _is_message(found.value):
                messages.append(found.value)
                continue
            yield from (Found(piece.path, f"record {i}", m) for i, m in enumerate(messages, 1))
            messages = []
            yield found
    except CutOff as error:
        line = piece_line(piece, data, error.start)
        yield Found(piece.path, f"record {number + 1}, line {line}", wrong=str(error))
    if messages:
        yield Found(piece.path, "record 1", {"messages": messages})
    if number < piece.first and piece.start == 0 and not data.strip():
        yield Found(piece.path, "the file", wrong="it is empty")


def piece_line(piece: FilePiece, data: bytes, place: int) -> int:
    """The line of the file that a place of a piece is in."""
    before = 0
    if piece.start:
        with open(piece.path, "rb") as file:
            left = piece.start
            while left and (block := file.read(min(left, BLOCK))):
                before += block.count(b"\n")
                left -= len(block)
    return before + data.count(b"\n", 0, place) + 1


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("role"), str) and "content" in value


def parsed(path: str, place: str, text: bytes) -> Found:
    """The value of a text."""
    if len(text) > MAX_RECORD:
        return Found(path, place, wrong=f"a record of {len(text) >> 20} MB; at most {MAX_RECORD >> 20} MB are read")
    try:
        return Found(path, place, from_json(text, allow_inf_nan=True))
    except ValueError as error:
        return Found(path, place, wrong=_why(text, str(error)))


def _why(text: bytes, message: str) -> str:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return f"it is not UTF-8 (byte {error.start + 1} of the record)"
    if "hex escape" in message:
        return f"broken JSON: it holds {HALF}"
    cut = message.startswith("EOF")
    return f"broken JSON: {'it is cut off' if cut else message}"


def _packed(piece: FilePiece) -> Iterator[Found]:
    """The lines, or the values, of a compressed file, as it is decompressed."""
    from recollect.files.unpacking import DAMAGED, unpacked

    try:
        with open_file(Path(piece.path)) as raw:
            stream = unpacked(raw, piece.path)
            if ".jsonl" in piece.path:
                for number, line in enumerate(bounded(stream, piece.path, MAX_RECORD), 1):
                    if line.strip():
                        yield parsed(piece.path, f"line {number}", line)
            else:
                for number, (_, text) in enumerate(values(stream), 1):
                    yield parsed(piece.path, f"record {number}", text)
    except (*DAMAGED, CutOff, BadInput) as error:
        yield Found(piece.path, "the file", wrong=f"it is damaged: {error}")
