"""How often a search with the question finds the needed paragraph: recall.py TASKS CORPUS bm25|dense [EMBEDDING].

TASKS are of `recollect data squad` without --paragraphs, CORPUS of `recollect data passages`.
"""

from __future__ import annotations

import sys
import tempfile

from recollect.eval.accuracy import of_scores
from recollect.files.rows import read_rows
from recollect.retrieval.dense import find_embedder
from recollect.retrieval.index import Index

DEPTHS = (1, 3, 5, 10)


def main(tasks: str, corpus: str, method: str, embedding: str = "") -> None:
    """Print recall at several depths with 95 % intervals."""
    embedder = find_embedder(embedding or None) if method == "dense" else None
    rows = [row for _, row in read_rows(tasks)]
    with tempfile.TemporaryDirectory() as cache:
        index = Index(corpus, method, cache, embedder)
        found = [[passage.text for passage, _ in index.search(row["question"], max(DEPTHS))] for row in rows]
    for depth in DEPTHS:
        rate = of_scores([float(row["context"] in texts[:depth]) for row, texts in zip(rows, found, strict=True)])
        print(f"recall@{depth} {method}: {rate.accuracy:.3f} (95 % {rate.low:.3f} – {rate.high:.3f}, n = {rate.n})")


if __name__ == "__main__":
    main(*sys.argv[1:])
