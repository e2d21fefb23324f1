"""`recollect data squad`: SQuAD's format becomes tasks, alone or in documents; what cannot be one is counted."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from recollect.config.compose import compose
from recollect.data.task_rows import load_tasks
from recollect.files.rows import read_rows
from recollect.runtime.console import Console
from recollect.types import BadInput
from recollect.workflows.data.make_data import DataOptions, write_data
from tests.commands import run

DATA = Path(os.environ.get("RECOLLECT_TEST_DATA", Path(__file__).parents[3] / "shared" / "data"))


def asked(name: str, question: str, *answers: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "question": question, "answers": [{"text": a, "answer_start": 0} for a in answers], **more}


def squad(path: Path, *paragraphs: tuple[str, list[dict[str, Any]]]) -> str:
    inside = [{"context": text, "qas": qas} for text, qas in paragraphs]
    path.write_text(json.dumps({"version": "1.1", "data": [{"title": "T", "paragraphs": inside}]}))
    return str(path)


def written(source: str, target: Path, *sizes: int, seed: int | None = None) -> list[dict[str, Any]]:
    write_data("squad", [source, str(target)], DataOptions(paragraphs=sizes, seed=seed), Console(True))
    return [row for _, row in read_rows(target)]


PARAGRAPHS = [
    (f"{name} holds {i}.", [asked(f"q{i}", f"What does {name} hold?", str(i))]) for i, name in enumerate("abcdef")
]


def test_rows_have_question_context_answers_and_id(tmp_path: Path) -> None:
    source = squad(tmp_path / "s.json", ("mira holds 2.", [asked("q", " Who? ", "mira", "mira", "2")]))
    (row,) = written(source, tmp_path / "t.jsonl")
    assert row == {
        "id": "q",
        "data_source": "squad",
        "question": "Who?",
        "answers": ["mira", "2"],
        "title": "T",
        "context": "mira holds 2.",
    }


@pytest.mark.parametrize("suffix", ["json", "jsonl", "parquet"])
def test_documents_hold_the_needed_paragraph_at_a_drawn_place(suffix: str, tmp_path: Path) -> None:
    source = squad(tmp_path / "s.json", *PARAGRAPHS)
    rows = written(source, tmp_path / f"t.{suffix}", 1, 4, 6)
    assert len(rows) == 18
    assert len({row["id"] for row in rows}) == 18
    places = set()
    for row in rows:
        parts = row["context"].split("\n\n")
        assert len(parts) == row["num_docs"] == len(set(parts))
        name = row["question"][len("What does ")]
        (place,) = [i for i, part in enumerate(parts) if f"{name} holds" in part]
        places.add((row["num_docs"], place))
    assert len([place for size, place in places if size == 6]) > 2
    again = written(source, tmp_path / f"again.{suffix}", 1, 4, 6)
    other = written(source, tmp_path / f"other.{suffix}", 1, 4, 6, seed=1)
    assert again == rows
    assert other != rows
    cfg = compose(None, [f"data.train_files={tmp_path / f't.{suffix}'}"])
    assert len(load_tasks(cfg, cfg.data.train_files)) == 18


def test_what_is_left_out_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = squad(
        tmp_path / "s.json",
        ("mira holds 2.", [asked("a", "Who?", "mira", "Mary"), asked("a", "What?", "2"), asked("b", "Where?", "Rome")]),
        ("  ", [asked("c", "Who?", "x")]),
        ("kolu holds 7.", [asked("d", "Who?", is_impossible=True)]),
    )
    write_data("squad", [source, str(tmp_path / "t.jsonl")], DataOptions(), Console())
    said = capsys.readouterr().out
    for line in (
        "left out 2 answers that do not stand in their paragraph",
        "left out 1 empty paragraphs",
        "left out 1 questions whose id was there before",
        "left out 2 questions without an answer",
    ):
        assert line in said
    assert [row["id"] for _, row in read_rows(tmp_path / "t.jsonl")] == ["a"]


BAD: dict[str, tuple[Any, str]] = {
    "no json": ("{", "is not JSON"),
    "a list": ([], "not in SQuAD's format"),
    "no paragraphs": ({"data": [{}]}, r"article 1: expected SQuAD's list `paragraphs`"),
    "no context": ({"data": [{"paragraphs": [{"qas": []}]}]}, r"article 1, paragraph 1: expected SQuAD's `context`"),
    "no question": ({"data": [{"paragraphs": [{"context": "a", "qas": [{}]}]}]}, r"question 1: expected SQuAD's"),
    "no id": (
        {"data": [{"paragraphs": [{"context": "a", "qas": [{"question": "?", "answers": [{"text": "a"}]}]}]}]},
        "it has no `id`",
    ),
    "answers": (
        {"data": [{"paragraphs": [{"context": "a", "qas": [{"question": "?", "answers": ["a"]}]}]}]},
        "a list of objects with `text`",
    ),
    "nothing": ({"data": []}, "holds no question with an answer"),
}


@pytest.mark.parametrize("case", BAD)
def test_files_that_cannot_work_are_one_line_and_leave_nothing(case: str, tmp_path: Path) -> None:
    content, words = BAD[case]
    source = tmp_path / "s.json"
    source.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(BadInput, match=words):
        written(str(source), tmp_path / "t.jsonl")
    assert [p.name for p in tmp_path.iterdir()] == ["s.json"]


def test_options_that_cannot_work(tmp_path: Path) -> None:
    source = squad(tmp_path / "s.json", *PARAGRAPHS)
    for size in (0, 7):
        with pytest.raises(BadInput, match=f"--paragraphs {size}: .* has 6"):
            written(source, tmp_path / "t.jsonl", size)
    with pytest.raises(BadInput, match="--paragraphs goes with squad, not with gsm8k"):
        write_data("gsm8k", ["a", "b"], DataOptions(paragraphs=[2]), Console(True))


def test_the_command(tmp_path: Path) -> None:
    source = squad(tmp_path / "s.json", *PARAGRAPHS)
    done = run("data", "squad", source, str(tmp_path / "t.jsonl"), "--paragraphs", "2", "--paragraphs", "3")
    assert done.returncode == 0
    assert f"wrote 12 tasks to {tmp_path / 't.jsonl'}" in done.stdout


@pytest.mark.parametrize("name", ["xquad_en_train.json", "nq_qed.json"])
def test_real_files(name: str, tmp_path: Path) -> None:
    if not (DATA / name).is_file():
        pytest.skip(f"{name} is not here")
    rows = written(str(DATA / name), tmp_path / "t.jsonl", 4)
    assert len(rows) > 100
    assert all(any(answer in row["context"] for answer in row["answers"]) for row in rows)
