"""`recollect data squad`: SQuAD's format becomes tasks, alone or in documents; what cannot be one is counted."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from recollect.config.compose import compose
from recollect.data.evidence import evidence_of
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
        "evidence": ["mira holds 2."],
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
        "left out: answers that do not stand in their paragraph (2)",
        "left out: empty paragraphs (1)",
        "left out: questions whose id was there before (1)",
        "left out: questions without an answer (2)",
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


def split_source(path: Path) -> str:
    """Forty paragraphs; two share a question, two are the same but for case and white space."""
    rows = [(f"P{i} holds {i}. It is old.", [asked(f"q{i}", f"What does P{i} hold?", str(i))]) for i in range(38)]
    rows += [("P0 is  HERE.", [asked("t0", "Where?", "HERE")]), ("p0 is here.", [asked("t1", "Who?", "p0")])]
    rows += [("P1 is there.", [asked("s", "what does  P0 hold?", "there")])]
    return squad(path, *rows)


def in_split(source: str, target: Path, split: str, **more: Any) -> list[dict[str, Any]]:
    write_data("squad", [source, str(target)], DataOptions(split=split, **more), Console(True))
    return [row for _, row in read_rows(target)]


def test_splits_share_neither_a_paragraph_nor_a_question(tmp_path: Path) -> None:
    source = split_source(tmp_path / "s.json")
    words = lambda text: " ".join(text.casefold().split())
    seen: list[set[str]] = []
    total = 0
    for split in ("train", "tune", "test"):
        rows = in_split(source, tmp_path / f"{split}.jsonl", split, paragraphs=[3], shares="60,20,20")
        parts = [words(p.partition("\n")[2]) for row in rows for p in row["context"].split("\n\n")]
        seen.append({*parts, *(words(row["question"]) for row in rows)})
        total += len(rows)
    assert total == 41
    assert not any(a & b for i, a in enumerate(seen) for b in seen[:i])


def test_a_split_has_the_same_questions_at_every_length_and_seed(tmp_path: Path) -> None:
    source = split_source(tmp_path / "s.json")
    first = in_split(source, tmp_path / "a.jsonl", "test", paragraphs=[2, 4])
    other = in_split(source, tmp_path / "b.jsonl", "test", paragraphs=[3], seed=5)
    by_size = {n: {r["question"] for r in first if r["num_docs"] == n} for n in (2, 4)}
    assert by_size[2] == by_size[4] == {r["question"] for r in other}
    for row in first:
        assert row["evidence"][0] in row["context"].split("\n\n")[row["needed"][0] - 1]


def test_distractors_of_another_file_are_of_no_part(tmp_path: Path) -> None:
    source = split_source(tmp_path / "s.json")
    fresh = [(f"fresh {i}.", []) for i in range(5)]
    named = squad(tmp_path / "d.json", *fresh, ("P3 holds 3.  It is old.", []), ("P4 holds 4. It is OLD.", []))
    rows = in_split(source, tmp_path / "t.jsonl", "test", paragraphs=[6], distractors=[named])
    for row in rows:
        parts = [p.partition("\n")[2] for p in row["context"].split("\n\n")]
        assert sorted(p for p in parts if p.startswith("fresh")) == [f"fresh {i}." for i in range(5)]
    with pytest.raises(BadInput, match=r"--paragraphs 7: .*d.json has 5"):
        in_split(source, tmp_path / "u.jsonl", "test", paragraphs=[7], distractors=[named])


def test_several_files_are_one(tmp_path: Path) -> None:
    one = squad(tmp_path / "a.json", *PARAGRAPHS[:3])
    two = squad(tmp_path / "b.json", *PARAGRAPHS[2:])
    write_data("squad", [one, two, str(tmp_path / "t.jsonl")], DataOptions(paragraphs=[6]), Console(True))
    assert len(list(read_rows(tmp_path / "t.jsonl"))) == 6  # the one that both have counts once


def test_the_evidence_is_the_sentence_at_the_place_that_the_file_gives(tmp_path: Path) -> None:
    text = "In 1990 J. Doe met Ann (of Rome). Later, 1990 copies were sold! The end."
    asked_at = {"id": "q", "question": "How many?", "answers": [{"text": "1990", "answer_start": text.rindex("1990")}]}
    (row,) = written(squad(tmp_path / "s.json", (text, [asked_at])), tmp_path / "t.jsonl")
    assert row["evidence"] == ["Later, 1990 copies were sold!"]
    assert evidence_of(text, "J. Doe") == "In 1990 J. Doe met Ann (of Rome)."
    assert evidence_of(text, "sold! The") == "Later, 1990 copies were sold! The end."
    assert evidence_of(text, "nobody") == ""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"split": "held"}, "--split held is unknown; known: train, tune, test"),
        ({"split": "test", "shares": "1,2"}, "--shares 1,2: give three numbers"),
        ({"split": "test", "shares": "0,0,0"}, "--shares 0,0,0: give three numbers"),
        ({"split": "test", "shares": "1,-1,1"}, "--shares 1,-1,1: give three numbers"),
        ({"shares": "1,1,1"}, "name one of them with --split"),
        ({"split": "tune", "shares": "1,0,1"}, "--split tune: no question of .* falls in it"),
    ],
)
def test_splits_that_cannot_work_leave_nothing(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    source = squad(tmp_path / "s.json", *PARAGRAPHS)
    with pytest.raises(BadInput, match=words):
        write_data("squad", [source, str(tmp_path / "t.jsonl")], DataOptions(**options), Console(True))
    assert [p.name for p in tmp_path.iterdir()] == ["s.json"]


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


def test_passages_are_every_paragraph_once(tmp_path: Path) -> None:
    source = squad(tmp_path / "s.json", *PARAGRAPHS, PARAGRAPHS[0], (" ", []))
    made, _ = write_data("passages", [source, str(tmp_path / "c.jsonl")], DataOptions(), Console(True))
    rows = [row for _, row in read_rows(tmp_path / "c.jsonl")]
    assert made == 6
    assert [(row["title"], row["text"]) for row in rows] == [("T", text) for text, _ in PARAGRAPHS]
    with pytest.raises(BadInput, match="--paragraphs goes with squad, not with passages"):
        write_data("passages", [source, str(tmp_path / "d.jsonl")], DataOptions(paragraphs=[2]), Console(True))
    with pytest.raises(BadInput, match=r"--split goes with squad .* not with passages"):
        write_data("passages", [source, str(tmp_path / "d.jsonl")], DataOptions(split="test"), Console(True))


def test_gsm8k_in_parts_that_share_no_question(tmp_path: Path) -> None:
    rows = [{"question": f"What is {i % 30} + 1?", "answer": f"{i}\n#### {i % 30 + 1}"} for i in range(40)]
    source = tmp_path / "g.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    seen = []
    for split in ("train", "tune", "test"):
        write_data("gsm8k", [str(source), str(tmp_path / f"{split}.jsonl")], DataOptions(split=split), Console(True))
        seen.append([row for _, row in read_rows(tmp_path / f"{split}.jsonl")])
    assert sum(map(len, seen)) == 40
    asked = [{row["question"] for row in part} for part in seen]
    assert not any(a & b for i, a in enumerate(asked) for b in asked[:i])
    assert len({row["id"] for part in seen for row in part}) == 40


def test_gsm8k_with_few_calculations(tmp_path: Path) -> None:
    worked = ["It is 1.", "1+1=<<1+1=2>>2.", "1+1=<<1+1=2>>2, 2+1=<<2+1=3>>3.", "<<1=1>> <<2=2>> <<3=3>>"]
    rows = [{"question": f"What is {i}?", "answer": f"{text}\n#### {i}"} for i, text in enumerate(worked * 10)]
    source = tmp_path / "g.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    sizes = {}
    for split in (None, "train", "test"):
        target = tmp_path / f"{split}.jsonl"
        write_data("gsm8k", [str(source), str(target)], DataOptions(split=split, calculations=2), Console(True))
        made = [row for _, row in read_rows(target)]
        assert {row["solution"].count("<<") for row in made} == {1, 2}
        sizes[split] = {row["id"] for row in made}
    assert sizes["train"] | sizes["test"] < sizes[None]
    assert not sizes["train"] & sizes["test"]
    with pytest.raises(BadInput, match="--calculations 0: no problem of"):
        write_data("gsm8k", [str(source), str(tmp_path / "n.jsonl")], DataOptions(calculations=0), Console(True))
    with pytest.raises(BadInput, match="--calculations goes with gsm8k, not with squad"):
        write_data("squad", ["a", "b"], DataOptions(calculations=2), Console(True))
