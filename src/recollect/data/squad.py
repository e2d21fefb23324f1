"""Files in SQuAD's format (1.1 and 2.0) as tasks: a question about its paragraph, alone or among others.

Questions without an answer, answers that are not in their paragraph, empty paragraphs and repeated ids are left out and
counted.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recollect.data.datasets import new_file, write_rows
from recollect.data.paragraphs import document_text
from recollect.files.reading import read_json
from recollect.files.rows import expand
from recollect.types import BadInput

NO_ANSWER = "questions without an answer"
ELSEWHERE = "answers that do not stand in their paragraph"
NO_TEXT = "empty paragraphs"
SEEN = "questions whose id was there before"


@dataclass
class Squad:
    """What a file holds: paragraphs, each once, and questions about them."""

    texts: list[str] = field(default_factory=list)
    rows: list[tuple[dict[str, Any], int]] = field(default_factory=list)  # (a task without its document, paragraph)
    left_out: Counter[str] = field(default_factory=Counter)


def write_squad(source: str, target: Path, sizes: Sequence[int], seed: int, say: Callable[[str], None]) -> int:
    """Write a new file of tasks; with ``sizes`` one for each question and number of paragraphs."""
    target = new_file(target)
    found = read_squad(source)
    for what, count in sorted(found.left_out.items()):
        say(f"left out {count:,} {what}")
    if not found.rows:
        raise BadInput(f"{source} holds no question with an answer in its paragraph")
    if wrong := [size for size in sizes if not 1 <= size <= len(found.texts)]:
        raise BadInput(f"--paragraphs {wrong[0]}: {source} has {len(found.texts)}, and a document at least 1")
    return write_rows(tasks(found, list(dict.fromkeys(sizes)), seed), target)


def read_squad(source: str) -> Squad:
    """Read files in SQuAD's format."""
    found, index, ids = Squad(), dict[str, int](), set[str]()
    for path in expand([source]):
        for place, title, paragraph in _paragraphs(path):
            text = paragraph.get("context")
            if not isinstance(text, str) or not isinstance(paragraph.get("qas"), list):
                raise BadInput(f"{place}: expected SQuAD's `context` and `qas`; it has {', '.join(paragraph)}")
            if not text.strip():
                found.left_out[NO_TEXT] += 1
                continue
            number = index.setdefault(text, len(index))
            for i, asked in enumerate(paragraph["qas"], 1):
                row = _row(asked, text, f"{place}, question {i}", found.left_out)
                if row is not None and row["id"] in ids:
                    found.left_out[SEEN] += 1
                elif row is not None:
                    ids.add(row["id"])
                    found.rows.append(({**row, "title": title}, number))
    found.texts = list(index)
    return found


def tasks(found: Squad, sizes: Sequence[int], seed: int) -> Iterator[dict[str, Any]]:
    """The rows: with the question's own paragraph, or with documents of so many, its place drawn from the seed."""
    for row, own in found.rows:
        if not sizes:
            yield {**row, "context": found.texts[own]}
        for size in sizes:
            rng = random.Random(f"squad:{seed}:{size}:{row['id']}")
            picked = rng.sample(range(len(found.texts) - 1), size - 1)
            order = [own, *(i + (i >= own) for i in picked)]
            rng.shuffle(order)
            text = "".join(document_text(n, found.texts[i]) for n, i in enumerate(order, 1))
            name = row["id"] if len(sizes) == 1 else f"{row['id']}-{size}"
            yield {**row, "id": name, "context": text, "num_docs": size}


def _paragraphs(name: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """(place, title, paragraph) of everything in a file."""
    path = Path(name).expanduser()
    try:
        whole = read_json(path)
    except BadInput as error:
        raise BadInput(f"this is not JSON that can be read: {error}") from None
    articles = whole.get("data") if isinstance(whole, dict) else None
    if not isinstance(articles, list):
        raise BadInput(f"{path} is not in SQuAD's format: it has no list `data`")
    for i, article in enumerate(articles, 1):
        inside = article.get("paragraphs") if isinstance(article, dict) else None
        if not isinstance(inside, list) or not all(isinstance(p, dict) for p in inside):
            raise BadInput(f"{path}, article {i}: expected SQuAD's list `paragraphs`")
        for j, paragraph in enumerate(inside, 1):
            yield f"{path}, article {i}, paragraph {j}", str(article.get("title") or ""), paragraph


def _row(asked: Any, text: str, place: str, left_out: Counter[str]) -> dict[str, Any] | None:
    """A task without its document; None where there is nothing to answer."""
    if not isinstance(asked, dict) or not isinstance(asked.get("question"), str) or not asked["question"].strip():
        raise BadInput(f"{place}: expected SQuAD's `question`, `id` and `answers`")
    given = asked.get("answers") or []
    if not isinstance(given, list) or not all(isinstance(a, dict) and isinstance(a.get("text"), str) for a in given):
        raise BadInput(f"{place}: expected `answers` as a list of objects with `text`")
    said = list(dict.fromkeys(a["text"].strip() for a in given if a["text"].strip()))
    kept = [answer for answer in said if answer in text]
    left_out[ELSEWHERE] += len(said) - len(kept)
    if asked.get("is_impossible") or not kept:
        left_out[NO_ANSWER] += 1
        return None
    if asked.get("id") in (None, ""):
        raise BadInput(f"{place}: it has no `id`")
    return {"id": str(asked["id"]), "data_source": "squad", "question": asked["question"].strip(), "answers": kept}
