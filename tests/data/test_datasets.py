"""``recollect data``: original files become task files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recollect.config import Config
from recollect.data.datasets import convert, write_rows
from recollect.data.task_rows import load_tasks
from recollect.files.rows import read_rows
from recollect.rewards.math_answers import math_reward_string_equal
from recollect.types import BadInput
from tests.data.test_task_rows import write

GSM = [
    {"question": "How many?", "answer": "3 * 4 = <<3*4=12>>12\n#### 1,200"},
    {"question": "Less?", "answer": "#### -5"},
]
HOTPOT: dict[str, Any] = {
    "_id": "abc",
    "question": "Who?",
    "answer": "mira",
    "context": [["Mira", ["Mira holds it.", " It is 472."]], ["Kolu", ["Kolu does not."]]],
    "supporting_facts": [["Mira", 1]],
    "type": "bridge",
    "level": "easy",
}


@pytest.mark.parametrize("suffix", ["json", "jsonl", "parquet"])
def test_gsm8k(suffix: str, tmp_path: Path) -> None:
    target = tmp_path / "new" / f"tasks.{suffix}"
    assert convert("gsm8k", write(tmp_path / "src.jsonl", GSM), target) == 2
    cfg = Config()
    cfg.agent.agent_type = "hf"
    tasks = load_tasks(cfg, [str(target)])
    assert [(t.id, t.question, t.answers, t.source) for t in tasks] == [
        ("gsm8k-0", "How many?", ("1200",), "gsm8k"),
        ("gsm8k-1", "Less?", ("-5",), "gsm8k"),
    ]
    assert tasks[0].fields["solution"] == "3 * 4 = <<3*4=12>>12"
    assert [p.name for p in target.parent.iterdir()] == [target.name]


@pytest.mark.parametrize("suffix", ["json", "jsonl", "parquet"])
@pytest.mark.parametrize("form", ["original", "columns"])
def test_hotpotqa(suffix: str, form: str, tmp_path: Path) -> None:
    row = HOTPOT
    if form == "columns":
        context, facts = HOTPOT["context"], HOTPOT["supporting_facts"]
        row = {**{k: v for k, v in HOTPOT.items() if k != "_id"}, "id": "abc"}
        row["context"] = {"title": [c[0] for c in context], "sentences": [c[1] for c in context]}
        row["supporting_facts"] = {"title": [f[0] for f in facts], "sent_id": [f[1] for f in facts]}
    source = write(tmp_path / ("src.parquet" if form == "columns" else "src.json"), [row])
    convert("hotpotqa", source, tmp_path / f"tasks.{suffix}")
    (task,) = load_tasks(Config(), [str(tmp_path / f"tasks.{suffix}")])  # the recurrent agent's document is there
    assert (task.id, task.question, task.answers, task.source) == ("abc", "Who?", ("mira",), "hotpotqa")
    assert task.context == "Document 1:\nMira\nMira holds it. It is 472.\n\nDocument 2:\nKolu\nKolu does not."
    assert task.fields["paragraphs"][1] == {"title": "Kolu", "text": "Kolu does not."}
    assert task.fields["supporting_facts"] == [{"title": "Mira", "sent_id": 1}]


@pytest.mark.parametrize(
    ("name", "row", "words"),
    [
        ("gsm8k", {"question": "a"}, "expected GSM8K"),
        ("gsm8k", {"question": "a", "answer": "5"}, "'#### number'"),
        ("hotpotqa", {**HOTPOT, "answer": None}, "`answer`"),
        ("hotpotqa", {**HOTPOT, "context": "text"}, "not HotpotQA's context"),
        ("hotpotqa", {**HOTPOT, "supporting_facts": [["Mira", "x"]]}, "not HotpotQA's context"),
    ],
)
def test_rows_that_are_something_else_are_named(name: str, row: dict[str, Any], words: str, tmp_path: Path) -> None:
    good = GSM[0] if name == "gsm8k" else HOTPOT
    source = write(tmp_path / "src.jsonl", [good, row])
    with pytest.raises(BadInput, match=rf"src.jsonl, line 2: .*{words}"):
        convert(name, source, tmp_path / "tasks.json")
    assert [p.name for p in tmp_path.iterdir()] == ["src.jsonl"]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    source, target = write(tmp_path / "src.jsonl", GSM), tmp_path / "tasks.json"
    target.write_text("mine")
    with pytest.raises(BadInput, match="is there already"):
        convert("gsm8k", source, target)
    with pytest.raises(BadInput, match="is there already"):
        write_rows(GSM, target)  # also when it appears meanwhile
    assert target.read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 2
    with pytest.raises(BadInput, match=r"ends in \.json"):
        convert("gsm8k", source, tmp_path / "tasks.txt")
    with pytest.raises(BadInput, match="known: gsm8k, hotpotqa"):
        convert("gsm", source, tmp_path / "t.json")


def test_the_command(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from recollect.cli import app

    source = write(tmp_path / "src.jsonl", GSM)
    done = CliRunner().invoke(app, ["data", "gsm8k", source, str(tmp_path / "t.json")])
    assert done.exit_code == 0
    assert "wrote 2 tasks" in done.output


def test_real_files(shared_data: Path, tmp_path: Path) -> None:
    cfg = Config()
    cfg.agent.agent_type = "hf"
    assert convert("gsm8k", str(shared_data / "gsm8k_sample.jsonl"), tmp_path / "g.parquet") == 300
    originals = [json.loads(line) for line in (shared_data / "gsm8k_sample.jsonl").open()]
    for task, row in zip(load_tasks(cfg, [str(tmp_path / "g.parquet")]), originals, strict=True):
        assert math_reward_string_equal(row["answer"], task) == 1
        assert "," not in task.answers[0]
    assert convert("hotpotqa", str(shared_data / "hotpotqa_sample.json"), tmp_path / "h.jsonl") == 60
    for _, row in read_rows(tmp_path / "h.jsonl"):
        titles = {p["title"] for p in row["paragraphs"]}
        assert {f["title"] for f in row["supporting_facts"]} <= titles
        assert all(p["text"] in row["context"] for p in row["paragraphs"])
