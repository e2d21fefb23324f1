"""BM25: the score of a term, and an index over memory-mapped arrays, exact.

    score(q, d) = Σ idf(t) · tf · (k1 + 1) / (tf + k1 · (1 - b + b · |d| / avgdl))   over the terms t of q
    idf(t)      = ln(1 + (N - df + 0.5) / (df + 0.5))

N passages, of which df hold t; tf times in d, which has |d| terms, avgdl on average. A term twice in q counts twice.

On disk are the sorted words (``words.bin`` and where each ends), for each word the passages that hold it and how often
(``docs``, ``counts``, from ``starts[w]`` to ``starts[w + 1]``), and the passages' lengths.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

K1, B = 1.2, 0.75
BLOCK = 20_000  # passages that are counted before their postings are written
_WORD = re.compile(r"\w+")


def words_of(text: str) -> list[str]:
    """The words that are compared: compatibility forms folded, lower case."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).lower())


def term_scores(qtf: int, tf: np.ndarray, lengths: np.ndarray, avgdl: float, count: int) -> np.ndarray:
    """What a term that a query holds ``qtf`` times adds to the passages that hold it, of ``count`` in all.

    ``tf`` says how often each of them holds it, ``lengths`` how many terms each has.
    """
    df = len(tf)
    idf = np.log1p((count - df + 0.5) / (df + 0.5))
    return qtf * idf * tf * (K1 + 1) / (tf + K1 * (1 - B + B * (lengths / avgdl)))


def build(texts: Iterable[str], folder: Path) -> None:
    """Write the index of some texts. Memory holds the vocabulary and one block of passages."""
    vocabulary: dict[str, int] = {}
    lengths: list[np.ndarray] = []
    parts: list[Path] = []
    for number, block in enumerate(_blocks(texts)):
        rows = [Counter(words_of(text)) for text in block]
        lengths.append(np.array([sum(r.values()) for r in rows], np.int32))
        ids = [vocabulary.setdefault(w, len(vocabulary)) for r in rows for w in r]
        counts = [c for r in rows for c in r.values()]
        docs = np.repeat(np.arange(len(rows)) + number * BLOCK, [len(r) for r in rows])
        parts.append(folder / f"part-{number}.npy")
        np.save(parts[-1], np.stack([np.array(ids, np.int64), docs.astype(np.int64), np.array(counts, np.int64)]))
    _merge(parts, vocabulary, folder)
    np.save(folder / "lengths.npy", np.concatenate(lengths) if lengths else np.zeros(0, np.int32))


def _blocks(texts: Iterable[str]) -> Iterator[list[str]]:
    block: list[str] = []
    for text in texts:
        block.append(text)
        if len(block) == BLOCK:
            yield block
            block = []
    if block:
        yield block


def _merge(parts: list[Path], vocabulary: dict[str, int], folder: Path) -> None:
    """Postings of all blocks in the order of words, then of passages."""
    encoded = {word.encode("utf-8", "surrogatepass"): number for word, number in vocabulary.items()}
    ordered = sorted(encoded)
    place = np.zeros(len(ordered), np.int64)  # number of a word → its place in the order
    place[[encoded[word] for word in ordered]] = np.arange(len(ordered))
    (folder / "words.bin").write_bytes(b"".join(ordered))
    np.save(folder / "ends.npy", np.cumsum([len(w) for w in ordered], dtype=np.int64))
    held = np.zeros(len(ordered) + 1, np.int64)
    for part in parts:
        held[1:] += np.bincount(place[np.load(part)[0]], minlength=len(ordered))
    starts = np.cumsum(held)
    np.save(folder / "starts.npy", starts)
    total = int(starts[-1])
    docs = np.lib.format.open_memmap(folder / "docs.npy", "w+", np.int32, (total,))
    counts = np.lib.format.open_memmap(folder / "counts.npy", "w+", np.int32, (total,))
    free = starts[:-1].copy()
    for part in parts:
        numbers, passage, count = np.load(part)
        word = place[numbers]
        order = np.argsort(word, kind="stable")
        word = word[order]
        first = np.searchsorted(word, word, side="left")
        target = free[word] + np.arange(len(word)) - first
        docs[target], counts[target] = passage[order], count[order]
        free += np.bincount(word, minlength=len(free))
        part.unlink()
    docs.flush()
    counts.flush()


class BM25:
    """An index that was built, opened for searching. Nothing is read but what a query needs."""

    def __init__(self, folder: Path) -> None:
        load: Any = lambda name: np.load(folder / f"{name}.npy", mmap_mode="r")
        self.ends, self.starts, self.lengths = load("ends"), load("starts"), load("lengths")
        self.docs, self.counts = load("docs"), load("counts")
        size = (folder / "words.bin").stat().st_size
        self.words: Any = np.memmap(folder / "words.bin", np.uint8, "r") if size else np.zeros(0, np.uint8)
        self.average = float(self.lengths.mean(dtype=np.float64)) if len(self.lengths) else 0.0

    def scores(self, query: str) -> np.ndarray:
        """[passages] the score of every passage, 0 where no word of the query occurs."""
        count = len(self.lengths)
        total = np.zeros(count)
        for word, qtf in sorted(Counter(words_of(query)).items()):
            at = self._find(word.encode("utf-8", "surrogatepass"))
            if at is None:
                continue
            a, b = int(self.starts[at]), int(self.starts[at + 1])
            docs, tf = np.asarray(self.docs[a:b]), np.asarray(self.counts[a:b], np.float64)
            lengths = np.asarray(self.lengths[docs], np.float64)
            total[docs] += term_scores(qtf, tf, lengths, self.average, count)
        return total

    def search(self, query: str, most: int) -> list[tuple[int, float]]:
        """(passage, score) of the best passages that hold a word of the query; equal scores in order of passages."""
        return best(self.scores(query), most, above=0.0)

    def _find(self, word: bytes) -> int | None:
        low, high = 0, len(self.ends)
        while low < high:
            middle = (low + high) // 2
            if self._word(middle) < word:
                low = middle + 1
            else:
                high = middle
        return low if low < len(self.ends) and self._word(low) == word else None

    def _word(self, i: int) -> bytes:
        return self.words[int(self.ends[i - 1]) if i else 0 : int(self.ends[i])].tobytes()


def best(scores: np.ndarray, most: int, above: float = -np.inf) -> list[tuple[int, float]]:
    """(index, score) of the largest scores, larger first, equal ones in order of their index."""
    most = min(most, len(scores))
    if most <= 0:
        return []
    least = np.partition(scores, len(scores) - most)[len(scores) - most]
    places = np.flatnonzero((scores >= least) & (scores > above))
    order = places[np.lexsort((places, -scores[places]))][:most]
    return [(int(i), float(scores[i])) for i in order]
