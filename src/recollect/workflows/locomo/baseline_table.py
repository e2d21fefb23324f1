"""The baselines of LoCoMo beside each other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recollect.data.locomo import CATEGORIES, NOT_MENTIONED
from recollect.eval.by_category import ANSWERABLE, by_category, question_scores
from recollect.files.output import write_atomic
from recollect.files.rows import read_rows
from recollect.runtime.console import Console
from recollect.types import Score, Task, Trajectory

COLUMNS = ("overall", ANSWERABLE, *(f"{number} {name}" for number, name in CATEGORIES.items()))
HEADER = ("", *COLUMNS, "set F1 (1–4)", "evidence recall", "refused", "questions")
REFUSAL = NOT_MENTIONED.partition(" in ")[0]


def refusals(file: Path) -> dict[str, Any]:
    """What always refusing scores on the questions of a file; no model is asked."""
    made = []
    for place, row in read_rows(file):
        task = Task(str(row["id"]), "", fields=dict(row), place=place)
        said = [REFUSAL] * len(row["questions"])
        made.append(question_scores(task, Trajectory(task.id, 0, answers=said, score=Score(0.0))))
    return by_category(made)


def cells(name: str, found: Mapping[str, Any]) -> list[str]:
    """A row of the table: official F1 of each category with its interval, and what stands beside it."""
    f1 = [_value(found.get(column, {}).get("locomo_f1")) for column in COLUMNS]
    more = [found.get(ANSWERABLE, {}).get("set_f1"), *(found["overall"].get(m) for m in ("evidence_recall", "refused"))]
    return [name, *f1, *map(_value, more), str(found["overall"]["locomo_f1"]["n"])]


def _value(row: Mapping[str, Any] | None) -> str:
    return "–" if row is None else f"{row['accuracy']:.3f} ({row['low']:.3f}–{row['high']:.3f})"


def show_baselines(found: Mapping[str, Any], console: Console) -> None:
    """The table for people."""
    console.table("LoCoMo, official F1", HEADER, [cells(name, row) for name, row in found.items()])


def write_baselines(place: Path, found: Mapping[str, Any]) -> None:
    """PLACE.json and PLACE.md."""
    place.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(place.with_name(f"{place.name}.json"), json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    rows = [HEADER, ["---"] * len(HEADER), *(cells(name, row) for name, row in found.items())]
    text = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    write_atomic(place.with_name(f"{place.name}.md"), f"# LoCoMo, official F1\n\n{text}\n")
