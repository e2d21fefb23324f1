"""Tokenising long texts that begin alike, or that have a known piece: what is known is not tokenised again.

The attempts at a task begin their prompts with the same section. The rest of such a text is tokenised from a blank some
tokens before the place where it parts from a known one. Those tokens must come out as they did before; if they do not,
the whole text is tokenised. Pieces that stand anywhere are told before they are shown (see pieces.py). Tokenizers that
do not part words are not helped if they weigh tokens by scores (Unigram): their sums round differently in a part.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from recollect.chat.pieces import CHECKED, LONG, OVERLAP, SEARCHED, KnownPieces
from recollect.chat.tokens import Tokens

KNOWN = 64  # texts that are remembered
KEPT = 2 << 20  # characters of them; a token of them takes some hundred bytes
PART = 1 << 16  # characters that are counted in one go
LOST = 8  # tokens that a cut may add


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


def splits_locally(backend: Any) -> bool:
    """False where a whole text's best split is searched for: which of two equals is found hangs on all before them."""
    if type(backend.model).__name__ != "Unigram":
        return True
    text = "a b" if backend.normalizer is None else backend.normalizer.normalize_str("a b")
    return backend.pre_tokenizer is not None and len(backend.pre_tokenizer.pre_tokenize_str(text)) > 1


class Encoder:
    """Ids of texts by a fast tokenizer's backend."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.least = LONG if splits_locally(backend) else sys.maxsize  # shorter texts are tokenised whole
        self.known: deque[Tokens] = deque(maxlen=KNOWN)  # texts that were tokenised whole
        self.pieces = KnownPieces()

    def encode(self, text: str) -> list[int]:
        """The same as the backend's own ids."""
        if len(text) < self.least:
            return self._ids(text)
        start = text[:LONG]
        near = [known for known in tuple(self.known) if known.text.startswith(start)]
        shared, place = max(((common_start(k.text, text), -i) for i, k in enumerate(near)), default=(0, 0))
        piece = self.pieces.find(text)
        found = None
        if piece is not None and piece[0].covered > shared:
            found = piece[0].within(text, piece[1], self._ids)
        elif near:
            found = self._continued(near[-place], shared, text)
        if found is not None:
            return found
        whole = Tokens(self.backend, text)
        self._remember(whole)
        return whole.ids.copy()

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of several texts. One call, which uses every core, tokenises the short ones; equal ones once."""
        short = list(dict.fromkeys(text for text in texts if len(text) < self.least))
        made = self.backend.encode_batch_fast(short, add_special_tokens=False)
        known = {text: list(ids.ids) for text, ids in zip(short, made, strict=True)}
        return [known[text].copy() if text in known else self.encode(text) for text in texts]

    def _remember(self, whole: Tokens) -> None:
        """Keep a text, and the ones before it as far as there is room. Threads may do this at once."""
        if len(whole.text) > KEPT:
            return
        room, kept = KEPT - len(whole.text), 0
        for known in reversed(tuple(self.known)):
            if (room := room - len(known.text)) < 0:
                break
            kept += 1
        with suppress(IndexError):
            while len(self.known) > kept:
                self.known.popleft()
        self.known.append(whole)

    def at_least(self, text: str, enough: int) -> int:
        """A number of tokens that a text has at least, counted in parts until there are enough."""
        count = 0
        for start in range(0, len(text), PART):
            part = text[start : start + PART].encode("utf-8", "replace").decode()
            count += max(0, len(self._ids(part)) - LOST)
            if count > enough:
                break
        return count

    def _ids(self, text: str) -> list[int]:
        (made,) = self.backend.encode_batch_fast([text], add_special_tokens=False)  # fast: nobody asks where they stand
        return list(made.ids)

    def _continued(self, known: Tokens, shared: int, text: str) -> list[int] | None:
        """The ids of a text whose first ``shared`` characters are those of a known one; None if it cannot be told."""
        last = bisect_right(known, shared, key=lambda span: span[1])  # tokens within what is shared
        for cut in range(last - OVERLAP, max(0, last - OVERLAP - SEARCHED), -1):
            at = known.parts_at(cut)
            if at is not None:
                again = self._ids(text[at:])
                same = again[:CHECKED] == known.ids[cut : cut + CHECKED]
                return [*known.ids[:cut], *again] if same else None
        return None
