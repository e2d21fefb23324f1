"""HotpotQA's questions in documents of any length: their own paragraphs among those of other questions.

Where a paragraph stands is drawn for each item from a seed of its own, so what is needed is never at a fixed place.
Rows have MemAgent's columns. Those of very long documents hold indices into one file of paragraphs, and no text.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recollect.data.datasets import new_file, write_rows
from recollect.data.hotpotqa import hotpotqa_row
from recollect.data.paragraphs import TEXTS, document_text, write_paragraphs
from recollect.files.rows import expand, read_rows
from recollect.types import BadInput

STREAMED = 1000  # documents of more paragraphs are stored as indices


@dataclass(frozen=True)
class HotpotParagraphs:
    """All questions of some HotpotQA files, and all of their paragraphs, each once."""

    rows: list[dict[str, Any]]
    texts: list[str]
    places: list[list[int]]  # of each question, its own paragraphs
    needed: list[list[int]]  # of each question, those with its supporting facts


def read_source(source: str) -> HotpotParagraphs:
    """Read HotpotQA's originals."""
    rows: list[dict[str, Any]] = []
    texts: list[str] = []
    places: list[list[int]] = []
    needed: list[list[int]] = []
    index: dict[str, int] = {}
    for path in expand([source]):
        for place, raw in read_rows(path):
            row = hotpotqa_row(raw, place, len(rows))
            own = []
            for paragraph in row["paragraphs"]:
                text = f"{paragraph['title']}\n{paragraph['text']}"
                if text not in index:
                    index[text] = len(texts)
                    texts.append(text)
                own.append(index[text])
            titles = {fact["title"] for fact in row["supporting_facts"]}
            golds = [i for i, p in zip(own, row["paragraphs"], strict=True) if p["title"] in titles]
            rows.append({k: row[k] for k in ("id", "question", "answer", "type", "level")})
            places.append(list(dict.fromkeys(own)))
            needed.append(list(dict.fromkeys(golds)))
    if not rows:
        raise BadInput(f"no rows in {source}")
    return HotpotParagraphs(rows, texts, places, needed)


def arrangement(source: HotpotParagraphs, i: int, size: int, seed: int) -> list[int]:
    """The paragraphs of question ``i`` in a document of ``size``, in their order; it depends on the item alone."""
    rng = random.Random(f"haystack:{seed}:{source.rows[i]['id']}:{size}")
    golds = source.needed[i]
    others = [p for p in source.places[i] if p not in golds]
    chosen = [*golds, *others][:size] if len(golds) <= size else golds
    mine = set(source.places[i])
    if len(source.texts) - len(mine) < size - len(chosen):
        raise BadInput(
            f"{size} documents need as many paragraphs, and the source has {len(source.texts)}; give more of HotpotQA"
        )
    drawn = rng.sample(range(len(source.texts)), min(len(source.texts), size + len(mine)))
    chosen += [p for p in drawn if p not in mine][: size - len(chosen)]
    rng.shuffle(chosen)
    return chosen


def haystack_row(source: HotpotParagraphs, i: int, size: int, seed: int, file: str) -> dict[str, Any]:
    """A row with MemAgent's columns; ``file`` names the paragraphs where they are stored as indices."""
    row, ids = source.rows[i], arrangement(source, i, size, seed)
    text = "".join(document_text(n, source.texts[p]) for n, p in enumerate(ids, 1)) if size <= STREAMED else None
    return {
        "id": f"{row['id']}-{size}",
        "data_source": "hotpotqa",
        "prompt": [{"role": "user", "content": row["question"]}],
        "context": text,
        "ability": "memory",
        "reward_model": {"style": "rule", "ground_truth": [row["answer"]]},
        "extra_info": {
            "index": i,
            "question": row["question"],
            "num_docs": size,
            "needed": [ids.index(p) + 1 for p in source.needed[i] if p in ids],
        },
        "paragraphs_file": None if text is not None else file,
        "paragraph_ids": None if text is not None else ids,
    }


def write_haystack(
    found: HotpotParagraphs, target: Path, sizes: Sequence[int], seed: int = 0, done: Callable[[], None] = lambda: None
) -> int:
    """Write documents of every size about every question, one row at a time; returns how many there are."""
    target = new_file(target)
    if any(size < 1 for size in sizes) or not sizes:
        raise BadInput("--documents has to be at least 1")
    paragraphs = target.with_name(target.name + TEXTS)
    if max(sizes) > STREAMED:
        arrangement(found, 0, max(sizes), seed)  # refuses what the source is too small for
        target.parent.mkdir(parents=True, exist_ok=True)
        write_paragraphs(found.texts, paragraphs)

    def rows() -> Iterator[dict[str, Any]]:
        for size in sizes:
            for i in range(len(found.rows)):
                yield haystack_row(found, i, size, seed, paragraphs.name)
                done()

    return write_rows(rows(), target, _schema() if target.suffix == ".parquet" else None)


def without(found: HotpotParagraphs, answered: Sequence[bool]) -> HotpotParagraphs:
    """The source without the questions that are answered already; their paragraphs stay as distractors."""
    keep = [i for i, known in enumerate(answered) if not known]
    if not keep:
        raise BadInput("every question is answered without its document; nothing is left")
    pick = lambda values: [values[i] for i in keep]
    return HotpotParagraphs(pick(found.rows), found.texts, pick(found.places), pick(found.needed))


def _schema() -> Any:
    import pyarrow as pa

    text, number = pa.string(), pa.int64()
    message = pa.struct([("role", text), ("content", text)])
    extra = pa.struct([("index", number), ("question", text), ("num_docs", number), ("needed", pa.list_(number))])
    return pa.schema(
        [
            ("id", text),
            ("data_source", text),
            ("prompt", pa.list_(message)),
            ("context", pa.large_string()),
            ("ability", text),
            ("reward_model", pa.struct([("style", text), ("ground_truth", pa.list_(text))])),
            ("extra_info", extra),
            ("paragraphs_file", text),
            ("paragraph_ids", pa.list_(pa.int32())),
        ]
    )
