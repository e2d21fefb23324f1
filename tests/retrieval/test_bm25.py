"""BM25 against a plain reading of its formula, and search by meaning against plain sorting."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recollect.retrieval import bm25, dense
from recollect.retrieval.bm25 import BM25, K1, B, best, words_of
from recollect.retrieval.fuse import fused

WORDS = ["mira", "Kolu", "holds", "472", "é", "漢字", "the", "a", "ﬁn"]
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join), min_size=1, max_size=14)
QUERY = st.lists(st.sampled_from([*WORDS, "absent"]), max_size=5).map(" ".join)


def naive(texts: list[str], query: str) -> list[float]:
    rows = [words_of(t) for t in texts]
    average = sum(map(len, rows)) / len(rows)
    scores = []
    for row in rows:
        score = 0.0
        for word in words_of(query):
            df, tf = sum(word in r for r in rows), row.count(word)
            if tf:
                idf = math.log(1 + (len(rows) - df + 0.5) / (df + 0.5))
                score += idf * tf * (K1 + 1) / (tf + K1 * (1 - B + B * len(row) / average))
        scores.append(score)
    return scores


@settings(max_examples=150, deadline=None, suppress_health_check=[*HealthCheck])
@given(texts=TEXTS, query=QUERY, block=st.sampled_from([1, 3, 100]), most=st.integers(1, 20))
def test_scores_are_exact(
    texts: list[str], query: str, block: int, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bm25, "BLOCK", block)
    bm25.build(texts, tmp_path)
    index, expected = BM25(tmp_path), naive(texts, query)
    assert index.scores(query) == pytest.approx(expected, abs=1e-12)
    found = index.search(query, most)
    assert [s for _, s in found] == pytest.approx(sorted((s for s in expected if s > 0), reverse=True)[:most])
    assert [expected[i] for i, _ in found] == pytest.approx([s for _, s in found])
    assert sorted(p.name for p in tmp_path.glob("part-*")) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't STOP, now!", ["don", "t", "stop", "now"]),
        ("ﬁn École", ["fin", "école"]),
        ("漢字 x", ["漢字", "x"]),
        (" .,", []),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words_of(text) == expected


def test_arrays_are_memory_mapped(tmp_path: Path) -> None:
    bm25.build(["mira holds 472", "kolu"], tmp_path)
    index = BM25(tmp_path)
    assert all(
        isinstance(a, np.memmap)
        for a in (index.docs, index.counts, index.starts, index.ends, index.lengths, index.words)
    )


def test_texts_without_words(tmp_path: Path) -> None:
    bm25.build(["...", " "], tmp_path)
    assert BM25(tmp_path).search("mira", 3) == []


@given(scores=st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), max_size=20), most=st.integers(0, 25))
def test_the_best_in_order(scores: list[float], most: int) -> None:
    expected = sorted(enumerate(scores), key=lambda p: (-p[1], p[0]))[:most]
    assert best(np.array(scores), most) == expected
    assert best(np.array(scores), most, above=0.0) == [p for p in expected if p[1] > 0]


def letters(texts: list[str]) -> np.ndarray:
    return np.array([[t.count(c) + 0.01 for c in "abcdef"] for t in texts])


def test_nearest_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "BATCH", 4)
    monkeypatch.setattr(dense, "ROWS", 3)
    texts = ["aab", "bbc", "ccd", "dde", "eef", "ffa", "abc", "def", "aaa", "fff"]
    dense.build(iter(texts), letters, len(texts), tmp_path / "v.npy")
    found = dense.Dense(tmp_path / "v.npy", letters).search("ab", 4)
    vectors, query = letters(texts), letters(["ab"])[0]
    cosine = vectors @ query / np.linalg.norm(vectors, axis=1) / np.linalg.norm(query)
    assert [i for i, _ in found] == list(np.argsort(-cosine, kind="stable")[:4])
    assert [s for _, s in found] == pytest.approx(sorted(cosine, reverse=True)[:4], abs=1e-6)


def test_models_have_names_of_their_own() -> None:
    assert dense.name_of(letters) == dense.name_of(letters)
    assert dense.name_of(letters) != dense.name_of(lambda texts: letters(texts)[:, ::-1] ** 2)


def test_fusion_by_hand() -> None:
    made = fused([[(7, 9.0), (3, 8.0)], [(3, 0.9), (5, 0.8)]], 3)
    assert made == [(3, 1 / 62 + 1 / 61), (7, 1 / 61), (5, 1 / 62)]
