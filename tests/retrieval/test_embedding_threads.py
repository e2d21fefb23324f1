"""A model of this process is asked by one thread at a time."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from recollect.retrieval import dense
from recollect.retrieval.dense import find_embedder


class OneUser:
    """Fails where two threads use it at once, as a fast tokenizer does."""

    def __init__(self, folder: str) -> None:
        self.folder, self.users = folder, 0

    def encode(self, texts: list[str], **how: Any) -> np.ndarray:
        self.users += 1
        if self.users > 1:
            raise RuntimeError("Already borrowed")
        time.sleep(0.01)
        self.users -= 1
        return np.ones((len(texts), 2), np.float32)


def test_threads_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("sentence_transformers")
    package.SentenceTransformer = OneUser  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", package)
    monkeypatch.setattr(dense.importlib.util, "find_spec", lambda name: package)
    (tmp_path / "config.json").write_text("{}")
    embedder = find_embedder(str(tmp_path))
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda i: embedder([f"text {i}"]), range(16)))
    assert all(vectors.shape == (1, 2) for vectors in made)
