"""Cutting text where a sentence ends, or between tokens."""

from __future__ import annotations

import re
from collections.abc import Callable

Count = Callable[[str], int]  # tokens of a text

_SENTENCE = re.compile(r".+?(?:[.!?…。！？][\"')\]]*(?=\s|$)|\n|$)\s*", re.DOTALL)


def sentences(text: str) -> list[str]:
    """A text in sentences and lines; joined they are the text again."""
    return [part for part in _SENTENCE.findall(text) if part]


def whole_sentences(text: str, fits: Callable[[str], bool]) -> str:
    """The longest beginning of whole sentences that fits; empty when not even one does."""
    parts = sentences(text)
    low, high = 0, len(parts)
    while low < high:
        middle = (low + high + 1) // 2
        if fits("".join(parts[:middle]).rstrip()):
            low = middle
        else:
            high = middle - 1
    return "".join(parts[:low]).rstrip()
