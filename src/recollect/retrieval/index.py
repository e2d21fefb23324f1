"""A corpus with its index, which is kept in a cache folder and made again when the corpus changes."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from recollect.retrieval import bm25, dense
from recollect.retrieval.corpus import Passage, fingerprint, passages
from recollect.retrieval.fuse import DEPTH, fused
from recollect.types import BadInput

VERSION = 1  # of what is on disk
METHODS = ("bm25", "dense", "hybrid")


def cache_folder(given: str | None = None) -> Path:
    """Where indexes are kept."""
    home = os.environ.get("RECOLLECT_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "recollect"
    )
    return Path(given or home).expanduser() / "indexes"


class Index:
    """A corpus that can be searched."""

    def __init__(
        self,
        corpus: str,
        method: str = "bm25",
        cache: str | None = None,
        embedder: dense.Embedder | None = None,
    ) -> None:
        """Each embedding model has vectors of its own; without one, the one that comes with a package is taken."""
        if method not in METHODS:
            raise BadInput(f"search.method={method} is unknown; known: {', '.join(METHODS)}")
        self.method = method
        folder = _built(corpus, cache_folder(cache))
        self.ends: Any = np.load(folder / "text_ends.npy", mmap_mode="r")
        self.text: Any = np.memmap(folder / "texts.bin", np.uint8, "r")
        self.bm25 = bm25.BM25(folder)
        self.dense: dense.Dense | None = None
        if method != "bm25":
            embedder = embedder or dense.find_embedder(None)
            path = folder / f"vectors-{dense.name_of(embedder)}.npy"
            if not path.exists():
                part = path.with_name(f".{path.name}-{os.getpid()}.npy")
                dense.build((f"{p.title}\n{p.text}" for p in self), embedder, len(self), part)
                os.replace(part, path)
            self.dense = dense.Dense(path, embedder)

    def __len__(self) -> int:
        return len(self.ends) // 2

    def __getitem__(self, i: int) -> Passage:
        if not 0 <= i < len(self):
            raise IndexError(i)
        return Passage(self._text(2 * i), self._text(2 * i + 1))

    def __iter__(self) -> Iterator[Passage]:
        return (self[i] for i in range(len(self)))

    def search(self, query: str, top_k: int) -> list[tuple[Passage, float]]:
        """The best passages, with their scores."""
        if self.dense is None:
            found = self.bm25.search(query, top_k)
        elif self.method == "dense":
            found = self.dense.search(query, top_k)
        else:
            deep = max(DEPTH, 10 * top_k)
            found = fused([self.bm25.search(query, deep), self.dense.search(query, deep)], top_k)
        return [(self[i], score) for i, score in found]

    def _text(self, i: int) -> str:
        start = int(self.ends[i - 1]) if i else 0
        return self.text[start : int(self.ends[i])].tobytes().decode("utf-8", "surrogatepass")


def _built(corpus: str, cache: Path) -> Path:
    """The index of the corpus as it is now, built if it is not there; those of its earlier states are deleted."""
    place = _digest(str(Path(corpus).expanduser().resolve()))
    folder = cache / f"v{VERSION}-{place}-{fingerprint(corpus)}"
    if folder.is_dir():
        return folder
    try:
        cache.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=".part-", dir=cache))
    except OSError as error:
        raise BadInput(f"the index cannot be kept in {cache}: {error.strerror}; set search.cache_dir") from None
    try:
        bm25.build(_stored(passages(corpus), part, corpus), part)
        try:
            os.rename(part, folder)
        except OSError:
            if not folder.is_dir():  # another process was first
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    for old in cache.glob(f"v*-{place}-*"):
        if old != folder:
            shutil.rmtree(old, ignore_errors=True)
    return folder


def _stored(found: Iterable[Passage], folder: Path, what: str) -> Iterator[str]:
    """Write titles and texts, and hand on what is indexed of each."""
    ends: list[int] = []
    at = 0
    with (folder / "texts.bin").open("wb") as out:
        for passage in found:
            for text in (passage.title, passage.text):
                at += out.write(text.encode("utf-8", "surrogatepass"))
                ends.append(at)
            yield f"{passage.title}\n{passage.text}"
    if at == 0:
        raise BadInput(f"search.corpus: there is no text in {what}")
    np.save(folder / "text_ends.npy", np.array(ends, np.int64))


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=6).hexdigest()
