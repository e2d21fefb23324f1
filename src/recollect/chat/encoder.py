"""Tokenising long texts that begin alike: the attempts at a task read the same section, which is tokenised once.

The rest of a text is tokenised from a blank some tokens before the place where it parts from a known one. Those tokens
must come out as they did before; if they do not, the whole text is tokenised.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

LONG = 2048  # characters from which it pays
OVERLAP = 64  # tokens that are tokenised again
CHECKED = 32  # of those, tokens that must come out the same
SEARCHED = 64  # tokens among which a blank is looked for
KNOWN = 64  # texts that are remembered


@dataclass(frozen=True)
class Known:
    """A text that was tokenised whole."""

    text: str
    ids: list[int]
    made: Any  # the tokenizer's encoding

    @cached_property
    def ends(self) -> np.ndarray:
        """[tokens] the character after each; it takes longer than tokenising, and many texts never need it."""
        return np.array([end for _, end in self.made.offsets], np.int64)


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


class Encoder:
    """Ids of texts by a fast tokenizer's backend."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.known: deque[Known] = deque(maxlen=KNOWN)

    def encode(self, text: str) -> list[int]:
        """The same as the backend's own ids."""
        if len(text) < LONG:
            return list(self.backend.encode(text, add_special_tokens=False).ids)
        start = text[:LONG]
        near = [known for known in self.known if known.text.startswith(start)]
        shared, place = max(((common_start(k.text, text), -i) for i, k in enumerate(near)), default=(0, 0))
        found = self._continued(near[-place], shared, text) if near else None
        if found is not None:
            return found
        whole = self.backend.encode(text, add_special_tokens=False)
        ids = list(whole.ids)
        self.known.append(Known(text, ids, whole))
        return ids.copy()

    def _continued(self, known: Known, shared: int, text: str) -> list[int] | None:
        """The ids of a text whose first ``shared`` characters are those of a known one; None if it cannot be told."""
        last = int(np.searchsorted(known.ends, shared, side="right"))  # tokens within what is shared
        for cut in range(last - OVERLAP, max(0, last - OVERLAP - SEARCHED), -1):
            at = int(known.ends[cut - 1])
            if known.text[at].isspace() and not known.text[at - 1].isspace():
                again: Sequence[int] = self.backend.encode(text[at:], add_special_tokens=False).ids
                same = list(again[:CHECKED]) == known.ids[cut : cut + CHECKED]
                return [*known.ids[:cut], *again] if same else None
        return None
