"""Reading documents of any size in sections of so many tokens, without ever holding all of it tokenised.

A section is an exact piece of the text, so it always decodes cleanly; its length is counted in the policy's own tokens.
"""

from __future__ import annotations

import codecs
import re
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

from recollect.types import BadInput

NO_TEXT = {  # how files begin that hold no text
    **dict.fromkeys((b"\x89PNG", b"\xff\xd8\xff", b"GIF87a", b"GIF89a"), "an image"),
    b"%PDF-": "a PDF",
    b"PK\x03\x04": "an archive or an office document",
}
PIECE = 1 << 16  # characters tokenised at a time
_SENTENCE_END = re.compile(r"(?:[.!?…。！？]|\A)['\")\]]*(?=\s)|\n")

T = TypeVar("T")


class Spans(Protocol):
    """Start and end character of each token of a text, by its number."""

    def __len__(self) -> int: ...

    def __getitem__(self, token: int, /) -> Any: ...


S = TypeVar("S", bound=Spans)


@dataclass(frozen=True)
class TextFile:
    """A document on disk, decoded as UTF-8; bytes that are not become the replacement character."""

    path: Path

    def pieces(self) -> Iterator[str]:
        """The text in bounded pieces."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        with self.path.open("rb") as file:
            while data := file.read(PIECE):
                yield decoder.decode(data)
        yield decoder.decode(b"", True)


def open_document(path: str | Path) -> TextFile:
    """A document from a path that a user gave."""
    path = Path(path).expanduser()
    if not path.exists():
        raise BadInput(f"no document at {path}")
    if not path.is_file():
        raise BadInput(f"{path} is not a file")
    if path.stat().st_size == 0:
        raise BadInput(f"the document {path} is empty")
    with path.open("rb") as file:
        beginning = file.read(8)
    kind = next((kind for start, kind in NO_TEXT.items() if beginning.startswith(start)), None)
    if kind is not None:
        raise BadInput(f"the document {path} is {kind}, and documents are text: take the text out of it first")
    return TextFile(path)


def pieces(context: Any) -> Iterator[str]:
    """The text of a context (a string or something with pieces()) in bounded pieces."""
    if isinstance(context, str):
        for start in range(0, len(context), PIECE):
            yield context[start : start + PIECE]
    else:
        yield from context.pieces()


def sections(
    context: Any,
    offsets: Callable[[str], S],
    size: int,
    split: str = "token",
    learn: Callable[[S, int, int], None] | None = None,
) -> Iterator[str]:
    """The document in sections of at most ``size`` tokens, in order; nothing is skipped or repeated.

    With split="sentence" a section holds whole sentences, unless a single one is longer than a section. ``learn`` is
    told where a section stands in the text it is cut from, before the section is handed out.
    """

    def cut(text: str, final: bool) -> Iterator[tuple[int, int]]:
        spans = offsets(text)
        for start, stop in _cut(text, spans, size, split, final):
            if learn is not None:
                learn(spans, start, stop)
            yield start, stop

    rest = ""
    for piece in pieces(context):
        rest += piece
        if len(rest) < PIECE:
            continue
        done = 0
        for start, stop in cut(rest, final=False):
            yield rest[start:stop]
            done = stop
        rest = rest[done:]
    for start, stop in cut(rest, final=True):
        yield rest[start:stop]


def is_long(context: Any) -> bool:
    """True for a document that is tokenised in several pieces."""
    return not isinstance(context, str) or len(context) > PIECE


def length_of(context: Any) -> int | None:
    """About how many characters a document has; None where that is not known without reading it."""
    if isinstance(context, str):
        return len(context)
    return context.path.stat().st_size if isinstance(context, TextFile) else None


def ahead(parts: Iterable[T]) -> Iterator[T]:
    """The same, the next of them made by another thread while one is worked on.

    Whoever asks too early waits, and everybody else with him: what happens in which order depends on no clock.
    """
    source, end = iter(parts), object()
    coming = _readers().submit(next, source, end)
    while (part := coming.result()) is not end:
        coming = _readers().submit(next, source, end)
        yield part  # type: ignore[misc]


@cache
def _readers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(2, "read-ahead")


def centre_cut(parts: Iterable[str], most: int) -> Iterator[str]:
    """At most ``most`` sections: the first half and the last half; 0 keeps all."""
    if most <= 0:
        yield from parts
        return
    head = (most + 1) // 2
    tail: deque[str] = deque(maxlen=most - head)
    for i, part in enumerate(parts):
        if i < head:
            yield part
        else:
            tail.append(part)
    yield from tail


def _cut(text: str, spans: Spans, size: int, split: str, final: bool) -> Iterator[tuple[int, int]]:
    """Spans of sections in a text. Unless final, what might still grow is left for the next call."""
    if len(spans) == 0:
        if final and text.strip():
            yield 0, len(text)
        return
    ends = [m.end() for m in _SENTENCE_END.finditer(text)] if split == "sentence" else []
    first, begin = 0, 0
    while first < len(spans):
        last = first + size
        if last >= len(spans):
            if final and text[begin:].strip():
                yield begin, len(text)
            return
        stop = min(spans[last][0], spans[last - 1][1])
        fitting = bisect_right(ends, stop)  # sentences that end before it
        if fitting and ends[fitting - 1] > begin:
            stop = ends[fitting - 1]
        elif stop <= begin:  # one character made of more tokens than a section holds
            stop = spans[last][1]
        yield begin, stop
        begin = stop
        first = bisect_left(spans, begin, lo=first + 1, key=lambda span: span[0])
