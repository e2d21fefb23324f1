"""Long pieces of prompts, such as a document's sections, whose inner tokens are known before they are shown.

A piece is tokenised with the text around it where it was read. Its tokens are the same in a prompt, except near its
ends: there the prompt is tokenised up to a blank some tokens inside the piece, and from one before its end. The tokens
next to both must come out as they did before.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

from recollect.chat.tokens import Tokens

LONG = 2048  # characters from which it pays
OVERLAP = 32  # tokens that are tokenised again
CHECKED = 16  # of those, tokens that must come out the same
SEARCHED = 256  # tokens among which a blank is looked for
KEY = 64  # characters that a piece is looked for by
PIECES = 64  # that are remembered


@dataclass(frozen=True)
class Piece:
    """A text, and the ids of all of it but its ends."""

    text: str
    head: int  # characters before the known ids, and before what follows them
    tail: int
    before: list[int]  # the ids next to the known ones
    ids: list[int]
    after: list[int]

    @property
    def covered(self) -> int:
        """Characters whose ids are known."""
        return self.tail - self.head

    def within(self, text: str, at: int, encode: Callable[[str], list[int]]) -> list[int] | None:
        """The ids of a text that has the piece in some place; None if they cannot be told."""
        begin = encode(text[: at + self.head])
        if begin[-CHECKED:] != self.before:
            return None
        end = encode(text[at + self.tail :])
        return [*begin, *self.ids, *end] if end[:CHECKED] == self.after else None


def make_piece(tokens: Tokens, start: int, stop: int) -> Piece | None:
    """The piece between two characters of a longer text; None where it has no blank to cut at."""
    first = bisect_left(tokens, start, key=lambda span: span[0])
    last = bisect_left(tokens, stop, lo=first, key=lambda span: span[0])
    if last - first < 2 * OVERLAP:
        return None
    heads = range(first + OVERLAP, min(last, first + OVERLAP + SEARCHED))
    tails = range(last - OVERLAP, max(first, last - OVERLAP - SEARCHED), -1)
    head, begin = next(((i, at) for i in heads if (at := tokens.parts_at(i)) is not None), (last, stop))
    tail, end = next(((i, at) for i in tails if (at := tokens.parts_at(i)) is not None), (first, start))
    if head >= tail:
        return None
    ids = tokens.ids
    before, inner, after = ids[head - CHECKED : head], ids[head:tail], ids[tail : tail + CHECKED]
    return Piece(tokens.text[start:stop], begin - start, end - start, before, inner, after)


class KnownPieces:
    """The pieces that were read last. They are learnt by threads that read ahead."""

    def __init__(self) -> None:
        self._known: dict[str, Piece | None] = {}
        self._latest: tuple[Piece, ...] = ()
        self._lock = Lock()

    def learn(self, tokens: Tokens, start: int, stop: int) -> None:
        """Learn a part of a text, without the blanks around it, which agents strip."""
        whole = tokens.text[start:stop]
        start += len(whole) - len(whole.lstrip())
        text = whole.strip()
        if len(text) < LONG:
            return
        with self._lock:
            piece = self._known.pop(text) if text in self._known else make_piece(tokens, start, start + len(text))
            self._known[text] = piece
            if len(self._known) > PIECES:
                del self._known[next(iter(self._known))]
            self._latest = tuple(p for p in reversed(self._known.values()) if p is not None)

    def find(self, text: str) -> tuple[Piece, int] | None:
        """The piece that gives most of a text's ids, and its place."""
        found: tuple[Piece, int] | None = None
        for piece in self._latest:
            if found is not None and piece.covered <= found[0].covered:
                continue
            at = text.find(piece.text[:KEY])
            if at >= 0 and (at := at if text.startswith(piece.text, at) else text.find(piece.text, at)) >= 0:
                found = piece, at
                if 2 * piece.covered > len(text):
                    break
        return found
