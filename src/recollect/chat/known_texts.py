"""Texts that were tokenised before, found by how they begin."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator
from threading import Lock

from recollect.chat.tokens import Tokens

KNOWN = 512  # texts that are remembered


def common_start(a: str, b: str) -> int:
    """How many characters two texts have in common from the start."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _text(tokens: Tokens) -> str:
    return tokens.text


class KnownTexts:
    """The newest texts, by their order: the one that begins most like another text is a neighbour of it."""

    def __init__(self) -> None:
        self._sorted: list[Tokens] = []
        self._oldest_first: deque[Tokens] = deque()
        self._characters = 0
        self._lock = Lock()

    def __iter__(self) -> Iterator[Tokens]:
        return iter(tuple(self._oldest_first))

    def add(self, whole: Tokens, most: int) -> None:
        """Remember a text, and of the ones before it as many as ``most`` characters hold."""
        if len(whole.text) > most:
            return
        with self._lock:
            insort(self._sorted, whole, key=_text)
            self._oldest_first.append(whole)
            self._characters += len(whole.text)
            while self._characters > most or len(self._sorted) > KNOWN:
                oldest = self._oldest_first.popleft()
                self._characters -= len(oldest.text)
                at = bisect_left(self._sorted, oldest.text, key=_text)
                del self._sorted[at]

    def nearest(self, text: str) -> tuple[Tokens | None, int]:
        """The known text that has most characters in common with this one from the start, and how many."""
        with self._lock:
            at = bisect_left(self._sorted, text, key=_text)
            near = self._sorted[max(0, at - 1) : at + 1]
        found = [(common_start(known.text, text), known) for known in near]
        shared, best = max(found, key=lambda pair: pair[0], default=(0, None))
        return best, shared
