"""Searching a few texts that are in memory: by words (BM25), by meaning, or both, fused by reciprocal ranks."""

from __future__ import annotations

from collections import Counter
from threading import Lock

import numpy as np

from recollect.retrieval.bm25 import best, term_scores, words_of
from recollect.retrieval.dense import Embedder, embed
from recollect.retrieval.fuse import DEPTH, fused


class TextIndex:
    """Texts that can be searched; more may be added at any time."""

    def __init__(self, embedder: Embedder | None = None) -> None:
        self.embedder = embedder
        self.texts: list[str] = []
        self._counts: list[Counter[str]] = []
        self._lengths: list[int] = []
        self._holders: dict[str, list[int]] = {}
        self._vectors: list[np.ndarray] = []
        self._embedding = Lock()

    def add(self, text: str) -> None:
        """One more text."""
        counts = Counter(words_of(text))
        for word in counts:
            self._holders.setdefault(word, []).append(len(self.texts))
        self.texts.append(text)
        self._counts.append(counts)
        self._lengths.append(counts.total())

    def bm25(self, query: str, most: int, first: int | None = None) -> list[tuple[int, float]]:
        """(text, score) of the best of the first ``first`` texts that hold a word of the query; as the disk index."""
        size = len(self.texts) if first is None else min(first, len(self.texts))
        scores = np.zeros(size)
        average = sum(self._lengths[:size]) / size if size else 0.0
        for word, qtf in sorted(Counter(words_of(query)).items()):
            held = [i for i in self._holders.get(word, ()) if i < size]
            if not held:
                continue
            tf = np.array([self._counts[i][word] for i in held], np.float64)
            lengths = np.array([self._lengths[i] for i in held], np.float64)
            scores[held] += term_scores(qtf, tf, lengths, average, size)
        return best(scores, most, above=0.0)

    def dense(self, query: str, most: int, first: int | None = None) -> list[tuple[int, float]]:
        """(text, cosine) of the nearest of the first ``first`` texts."""
        if self.embedder is None:
            raise ValueError("there is no embedding model")
        size = len(self.texts) if first is None else min(first, len(self.texts))
        with self._embedding:  # questions are answered side by side, in threads
            missing = self.texts[len(self._vectors) : size]
            if missing:
                self._vectors += list(embed(self.embedder, missing))
        if not size:
            return []
        return best(np.stack(self._vectors[:size]) @ embed(self.embedder, [query])[0], most)

    def search(self, query: str, most: int, method: str, first: int | None = None) -> list[int]:
        """The best texts by ``bm25``, ``dense``, or ``hybrid``: both, by reciprocal ranks."""
        if method == "bm25":
            found = self.bm25(query, most, first)
        elif method == "dense":
            found = self.dense(query, most, first)
        else:
            deep = max(DEPTH, 10 * most)
            found = fused([self.bm25(query, deep, first), self.dense(query, deep, first)], most)
        return [i for i, _ in found]
