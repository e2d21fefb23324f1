"""Searching texts in memory gives what the index on disk gives."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.retrieval.bm25 import BM25, build
from recollect.retrieval.text_index import TextIndex

texts = st.lists(st.text(alphabet="abc ", max_size=20), min_size=1, max_size=8)


@settings(max_examples=30)
@given(texts, st.text(alphabet="abc ", max_size=8), st.integers(1, 5))
def test_scores_are_those_of_the_disk_index(rows: list[str], query: str, most: int) -> None:
    finder = TextIndex()
    for row in rows:
        finder.add(row)
    with TemporaryDirectory() as folder:
        build(rows, Path(folder))
        expected = BM25(Path(folder)).search(query, most)
    found = finder.bm25(query, most)
    assert [i for i, _ in found] == [i for i, _ in expected]
    np.testing.assert_allclose([s for _, s in found], [s for _, s in expected])


def test_only_what_was_there_then_is_found() -> None:
    finder = TextIndex(lambda rows: [[float("red" in r), 1.0] for r in rows])
    for row in ("a blue door", "a red door", "a red car"):
        finder.add(row)
    assert finder.search("red", 3, "bm25", first=2) == [1]
    assert finder.search("red", 1, "dense", first=1) == [0]
    assert finder.search("red door", 1, "hybrid") == [1]
    assert finder.search("red", 3, "dense", first=0) == []
