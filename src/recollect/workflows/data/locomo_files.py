"""`recollect data locomo SRC OUTDIR`: LoCoMo's file as task files, split by conversation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from recollect.data.conversation_split import Asked, Parts, asking, drawn, split
from recollect.data.datasets import write_rows
from recollect.data.locomo import read_locomo
from recollect.files.output import refuse_unwritable, write_atomic
from recollect.files.reading import read_bytes
from recollect.types import BadInput

CARD = "card.json"


@dataclass(frozen=True)
class LocomoOptions:
    """Which questions are written, and how."""

    split: str | None = None  # see data/conversation_split.py
    num_train: int | None = None  # questions; None: all of the part
    num_val: int | None = None
    num_test: int | None = None
    questions: int | None = None  # most questions of one training task; None: all of its conversation
    seed: int = 0  # draws them
    train_categories: str | None = None  # of training questions, as in 1,2,3,4; None: all
    val_questions: int | None = None  # most questions of one validation task; None: all of its conversation


def write_locomo(source: str, target: Path, options: LocomoOptions, say: Callable[[str], None]) -> int:
    """Write train.jsonl, val.jsonl, test.jsonl (those that have questions) and a card; returns how many questions."""
    target = target.expanduser()
    if options.questions is not None and options.questions < 1:
        raise BadInput(f"--questions {options.questions} must be at least 1")
    if target.is_file() or (target.is_dir() and any(target.iterdir())):
        raise BadInput(f"{target} is there already; name a new folder")
    refuse_unwritable(target, str(target))
    conversations = read_locomo(source)
    defects = [defect for talk in conversations for defect in talk.defects]
    try:
        parts = asking(split(conversations, options.split), options.train_categories)
    except BadInput as error:
        raise BadInput(f"{source}: {error}") from None
    wanted = {"train": options.num_train, "val": options.num_val, "test": options.num_test}
    asked = drawn(parts, wanted, options.seed)
    for defect in defects:
        say(f"defect: {defect}")
    written = 0
    for part, of_each in asked.items():
        if of_each:
            most = {"train": options.questions, "val": options.val_questions}.get(part)
            write_rows(_rows(parts, asked, part, most), target / f"{part}.jsonl")
            number = sum(map(len, of_each.values()))
            say(f"{part}: {number} questions about {', '.join(of_each)}")
            written += number
    _write_card(source, target, asked, defects, options)
    return written


def _rows(parts: Parts, asked: Asked, part: str, most: int | None) -> Iterator[dict[str, object]]:
    """A task for each conversation, or for every ``most`` of its questions."""
    for talk in parts[part]:
        questions = asked[part].get(talk.name, [])
        size = most or max(1, len(questions))
        blocks = [questions[i : i + size] for i in range(0, len(questions), size)]
        for i, block in enumerate(blocks, 1):
            yield talk.task(talk.name if len(blocks) == 1 else f"{talk.name}/{i}", block)


def _write_card(source: str, target: Path, asked: Asked, defects: list[str], options: LocomoOptions) -> None:
    digest = hashlib.sha256(read_bytes(Path(source).expanduser())).hexdigest()
    counts = {part: {name: len(rows) for name, rows in of_each.items()} for part, of_each in asked.items()}
    card = {"source_sha256": digest, "seed": options.seed, "questions": counts}
    write_atomic(target / CARD, json.dumps({**card, "defects": defects}, indent=2, ensure_ascii=False) + "\n")
