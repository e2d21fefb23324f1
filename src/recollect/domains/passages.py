"""The tool ``search`` over a task's own document, for tasks that bring what is to be searched."""

from __future__ import annotations

import math
import re
from collections import Counter
from functools import lru_cache

from recollect.config import Config
from recollect.data.documents import pieces
from recollect.retrieval.bm25 import K1, B, words_of
from recollect.tools.search import NOTHING
from recollect.tools.tool import tool
from recollect.types import Task

MOST = 20


def passages_of(text: str) -> list[str]:
    """The passages of a document: its paragraphs, or its lines where it has none, or its sentences."""
    for border in (r"\n\s*\n", r"\n", r"(?<=[.!?])\s+"):
        found = [p.strip() for p in re.split(border, text) if p.strip()]
        if len(found) > 1:
            return found
    return [text.strip()] if text.strip() else []


class Passages:
    """A few passages in memory, ranked by BM25."""

    def __init__(self, text: str) -> None:
        self.texts = passages_of(text)
        self.counts = [Counter(words_of(p)) for p in self.texts]
        self.lengths = [sum(c.values()) for c in self.counts]
        self.average = sum(self.lengths) / max(1, len(self.lengths))
        self.held = Counter(word for c in self.counts for word in c)

    def search(self, query: str, top_k: int) -> list[str]:
        """The best passages that hold a word of the query; equal ones in their order."""
        wanted = Counter(words_of(query))
        scores = [self._score(i, wanted) for i in range(len(self.texts))]
        best = sorted((i for i, s in enumerate(scores) if s > 0), key=lambda i: (-scores[i], i))
        return [self.texts[i] for i in best[:top_k]]

    def _score(self, i: int, wanted: Counter[str]) -> float:
        norm = K1 * (1 - B + B * self.lengths[i] / self.average)
        return sum(
            times * self._rarity(word) * tf * (K1 + 1) / (tf + norm)
            for word, times in wanted.items()
            if (tf := self.counts[i].get(word, 0))
        )

    def _rarity(self, word: str) -> float:
        return math.log1p((len(self.texts) - self.held[word] + 0.5) / (self.held[word] + 0.5))


@lru_cache(maxsize=256)
def indexed(text: str) -> Passages:
    """The passages of a document, kept for the other attempts at its task."""
    return Passages(text)


@tool
def search(query: str, task: Task, cfg: Config) -> str:
    """Search for passages about something.

    Args:
        query: What to look for, in a few words.
    """
    if not query.strip():
        raise ValueError("the query is empty")
    if task.context is None:
        return "There is nothing to search."
    text = task.context if isinstance(task.context, str) else "".join(pieces(task.context))
    found = indexed(text).search(query, min(cfg.search.top_k, MOST))
    return "\n".join(p[: cfg.search.max_length] for p in found) or NOTHING
