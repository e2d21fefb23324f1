"""How often a search with the question finds what is needed: recall.py TASKS CORPUS bm25|dense [OUT [EMBEDDING]].

TASKS are of `recollect data squad` without --paragraphs, or of `recollect data hotpotqa`, where all paragraphs with
supporting facts are needed. CORPUS is of `recollect data passages`. OUT.json keeps the figures.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recollect.eval.accuracy import of_scores
from recollect.files.rows import read_rows
from recollect.retrieval.dense import find_embedder
from recollect.retrieval.index import Index

DEPTHS = (1, 3, 5, 10)


def needed(row: Mapping[str, Any]) -> set[str]:
    """The texts of the paragraphs that a question needs."""
    if "paragraphs" not in row:
        return {row["context"]}
    titles = {fact["title"] for fact in row["supporting_facts"]}
    return {p["text"] for p in row["paragraphs"] if p["title"] in titles}


def main(tasks: str, corpus: str, method: str, out: str = "", embedding: str = "") -> None:
    """Print recall at several depths with 95 % intervals."""
    embedder = find_embedder(embedding or None) if method == "dense" else None
    rows = [row for _, row in read_rows(tasks)]
    with tempfile.TemporaryDirectory() as cache:
        index = Index(corpus, method, cache, embedder)
        found = [[passage.text for passage, _ in index.search(row["question"], max(DEPTHS))] for row in rows]
    rates = {}
    for depth in DEPTHS:
        hits = [float(needed(row) <= set(texts[:depth])) for row, texts in zip(rows, found, strict=True)]
        rates[depth] = rate = of_scores(hits)
        print(f"recall@{depth} {method}: {rate.accuracy:.3f} (95 % {rate.low:.3f} – {rate.high:.3f}, n = {rate.n})")
    if out:
        Path(out).write_text(json.dumps({depth: rate.row() for depth, rate in rates.items()}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
