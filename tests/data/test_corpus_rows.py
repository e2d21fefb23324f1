"""A corpus from files of SQuAD's and HotpotQA's formats."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recollect.data.corpus_rows import write_passages
from recollect.files.rows import read_rows
from recollect.types import BadInput

ITEM = {
    "_id": "a",
    "question": "Which is older?",
    "answer": "Arno",
    "context": [["Arno", ["Arno is old.", " It is small."]], ["Brix", ["Brix is new."]], ["Empty", [""]]],
    "supporting_facts": [["Arno", 0], ["Brix", 0]],
}


def passages(target: Path) -> list[tuple[str, str]]:
    return [(row["title"], row["text"]) for _, row in read_rows(target)]


@pytest.mark.parametrize("name", ["h.json", "h.jsonl"])
def test_paragraphs_of_hotpotqa_once(name: str, tmp_path: Path) -> None:
    rows = [ITEM, {**ITEM, "_id": "b", "context": [*ITEM["context"][:1], ["Cole", ["Cole is far."]]]}]
    source = tmp_path / name
    source.write_text(json.dumps(rows) if name.endswith(".json") else "\n".join(map(json.dumps, rows)))
    assert write_passages([str(source)], tmp_path / "c.jsonl") == 3
    assert passages(tmp_path / "c.jsonl") == [
        ("Arno", "Arno is old. It is small."),
        ("Brix", "Brix is new."),
        ("Cole", "Cole is far."),
    ]


def test_formats_may_be_mixed(tmp_path: Path) -> None:
    squad, hotpotqa = tmp_path / "s.json", tmp_path / "h.json"
    squad.write_text(json.dumps({"data": [{"title": "T", "paragraphs": [{"context": "Brix is new.", "qas": []}]}]}))
    hotpotqa.write_text(json.dumps([ITEM]))
    assert write_passages([str(squad), str(hotpotqa)], tmp_path / "c.jsonl") == 2
    assert passages(tmp_path / "c.jsonl") == [("T", "Brix is new."), ("Arno", "Arno is old. It is small.")]


@pytest.mark.parametrize("text", ["[{}]", '{"data": 3}', "[1", "[]", '{"data": []}'])
def test_other_files_are_refused(text: str, tmp_path: Path) -> None:
    source = tmp_path / "x.json"
    source.write_text(text)
    with pytest.raises(BadInput):
        write_passages([str(source)], tmp_path / "c.jsonl")
    assert not (tmp_path / "c.jsonl").exists()
