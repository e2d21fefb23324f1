"""Files in SQuAD's format (1.1 and 2.0) as tasks: a question about its paragraph, alone or among others.

Questions without an answer, answers that are not in their paragraph, empty paragraphs and repeated ids are left out and
counted. Parts of the data (train, tune, test) share neither a paragraph nor a question, distractors included.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recollect.data.datasets import new_file, write_rows
from recollect.data.evidence import evidence_of
from recollect.data.paragraphs import document_text
from recollect.data.splits import SHARES, same_words, split_of
from recollect.files.reading import read_json
from recollect.files.rows import expand
from recollect.runtime.error_text import listed
from recollect.types import BadInput

NO_ANSWER = "questions without an answer"
ELSEWHERE = "answers that do not stand in their paragraph"
NO_TEXT = "empty paragraphs"
SEEN = "questions whose id was there before"


@dataclass
class Squad:
    """What some files hold: paragraphs, each once, and questions about them."""

    texts: list[str] = field(default_factory=list)
    rows: list[tuple[dict[str, Any], int]] = field(default_factory=list)  # (a task without its document, paragraph)
    left_out: Counter[str] = field(default_factory=Counter)
    titles: list[str] = field(default_factory=list)  # of each paragraph, its article's


@dataclass(frozen=True)
class SquadOptions:
    """Which tasks are written, and in which documents."""

    sizes: Sequence[int] = ()  # paragraphs of a document; a question is written once for each; none: its own paragraph
    seed: int = 0  # draws places and distractors
    split: str | None = None  # train, tune or test; None: all questions
    shares: Sequence[float] = SHARES  # of the three parts
    distractors: Sequence[str] = ()  # files whose paragraphs stand beside the needed one; default: those of the part


def write_squad(sources: Sequence[str], target: Path, options: SquadOptions, say: Callable[[str], None]) -> int:
    """Write a new file of tasks."""
    target = new_file(target)
    whole, named = read_squad(sources), ", ".join(sources)
    for what, count in sorted((+whole.left_out).items()):
        say(f"left out: {what} ({count:,})")
    if not whole.rows:
        raise BadInput(f"{named} holds no question with an answer in its paragraph")
    found = whole if options.split is None else part_of(whole, options)
    if not found.rows:
        raise BadInput(f"--split {options.split}: no question of {named} falls in it; change --shares")
    others = _distractors(whole, found, options)
    if wrong := [size for size in options.sizes if not 1 <= size <= len(others) + bool(options.distractors)]:
        where = ", ".join(options.distractors) or named + (f", {options.split}," if options.split else "")
        raise BadInput(f"--paragraphs {wrong[0]}: {where} has {len(others)}, and a document at least 1")
    return write_rows(tasks(found, others, list(dict.fromkeys(options.sizes)), options.seed), target)


def part_of(whole: Squad, options: SquadOptions) -> Squad:
    """The questions of one part, and its paragraphs."""
    asked = [(row["question"], own) for row, own in whole.rows]
    parts = split_of(whole.texts, asked, options.shares)
    kept = [i for i, part in enumerate(parts) if part == options.split]
    place = {i: new for new, i in enumerate(kept)}
    rows = [(row, place[own]) for row, own in whole.rows if own in place]
    return Squad([whole.texts[i] for i in kept], rows, whole.left_out, [whole.titles[i] for i in kept])


def _distractors(whole: Squad, found: Squad, options: SquadOptions) -> list[str]:
    """The paragraphs that may stand beside a needed one: those of the part, or of other files those of no part."""
    if not options.distractors:
        return found.texts
    taken = set(map(same_words, whole.texts))
    return [text for text in read_squad(options.distractors).texts if same_words(text) not in taken]


def read_squad(sources: Sequence[str]) -> Squad:
    """Read files in SQuAD's format."""
    found, index, ids = Squad(), dict[str, int](), set[str]()
    for path in expand(sources):
        for place, title, paragraph in _paragraphs(path):
            text = paragraph.get("context")
            if not isinstance(text, str) or not isinstance(paragraph.get("qas"), list):
                raise BadInput(f"{place}: expected SQuAD's `context` and `qas`; it has {listed(paragraph)}")
            if not text.strip():
                found.left_out[NO_TEXT] += 1
                continue
            number = index.setdefault(text, len(index))
            found.titles += [title] if number == len(found.titles) else []
            for i, asked in enumerate(paragraph["qas"], 1):
                row = _row(asked, text, f"{place}, question {i}", found.left_out)
                if row is not None and row["id"] in ids:
                    found.left_out[SEEN] += 1
                elif row is not None:
                    ids.add(row["id"])
                    found.rows.append(({**row, "title": title}, number))
    found.texts = list(index)
    return found


def tasks(found: Squad, others: Sequence[str], sizes: Sequence[int], seed: int) -> Iterator[dict[str, Any]]:
    """The rows: with the question's own paragraph, or with documents of so many, its place drawn from the seed."""
    mine = found.texts is others
    for row, own in found.rows:
        text = found.texts[own]
        if not sizes:
            yield {**row, "context": text}
        for size in sizes:
            rng = random.Random(f"squad:{seed}:{size}:{row['id']}")
            picked = rng.sample(range(len(others) - mine), size - 1)
            order = [text, *(others[i + (mine and i >= own)] for i in picked)]
            rng.shuffle(order)
            whole = "".join(document_text(n, part) for n, part in enumerate(order, 1))
            name = row["id"] if len(sizes) == 1 else f"{row['id']}-{size}"
            yield {**row, "id": name, "context": whole, "num_docs": size, "needed": [order.index(text) + 1]}


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
    evidence = [evidence_of(text, kept[0], _start(given, kept[0]))]
    question = asked["question"].strip()
    return {"id": str(asked["id"]), "data_source": "squad", "question": question, "answers": kept, "evidence": evidence}


def _start(given: Sequence[Mapping[str, Any]], answer: str) -> int | None:
    """Where an answer begins, as the file says."""
    start = next(a.get("answer_start") for a in given if a["text"].strip() == answer)
    return start if isinstance(start, int) and start >= 0 else None
