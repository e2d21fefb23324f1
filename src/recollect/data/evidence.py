"""The sentence of a text in which an answer stands."""

from __future__ import annotations

import re
from itertools import pairwise

_END = re.compile(r"[.!?]['\")\]]*\s+|\n+")
_NO_END = re.compile(r"\b(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|No|vs|ca|approx|e\.g|i\.e)\s?\.\s+$")
LONG = 12  # characters in which such an abbreviation stands


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Start and end character of each sentence and line; together they cover the text."""
    ends = (m.end() for m in _END.finditer(text))
    cuts = [0, *(end for end in ends if not _NO_END.search(text[max(0, end - LONG) : end])), len(text)]
    return [(start, end) for start, end in pairwise(cuts) if end > start]


def evidence_of(text: str, answer: str, start: int | None = None) -> str:
    """The sentence that holds an answer, or sentences where it runs over several.

    ``start`` is where the answer begins; without it, or where the answer is not there, its first place counts.
    """
    if start is None or text[start : start + len(answer)] != answer:
        start = text.find(answer)
    if start < 0:
        return ""
    spans = [s for s in sentence_spans(text) if s[0] < start + len(answer) and s[1] > start]
    return text[spans[0][0] : spans[-1][1]].strip()
