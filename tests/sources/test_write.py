"""Made-up tasks as files: what is read back is the task that was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recollect.config.compose import compose
from recollect.data.haystack import read_source
from recollect.data.questions import questions_of
from recollect.data.task_rows import load_tasks
from recollect.domains.families import made_up
from recollect.files.rows import read_rows
from recollect.runtime.console import Console
from recollect.types import BadInput
from recollect.workflows.data.make_data import DataOptions, write_data
from tests.policies.outside import Outside, running


@pytest.mark.parametrize("suffix", ["json", "jsonl", "parquet"])
@pytest.mark.parametrize("name", ["needle", "ledger"])
def test_tasks_read_back_as_they_were(name: str, suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"t.{suffix}"
    options = DataOptions(count=5, held_out=True, multiple=2)
    assert write_data(name, [str(file)], options, Console(True)) == (5, str(file))
    cfg = compose(name, [])
    for i, read in enumerate(load_tasks(cfg, [str(file)])):
        task = made_up(cfg).held_out(cfg, 2, i)
        assert (read.id, read.question, read.answers) == (task.id, task.question, task.answers)
        assert (read.context, read.source) == (task.context, task.source)
        assert questions_of(read) == questions_of(task)


def test_training_and_held_out_names_never_meet(tmp_path: Path) -> None:
    cfg = compose("ledger", [])
    words = [
        {w for i in range(100) for s in make(i).context for w in s["text"].replace(".", "").split() if w != "holds"}
        for make in (lambda i: made_up(cfg).train(cfg, 0, i), lambda i: made_up(cfg).held_out(cfg, 1, i))
    ]
    assert not words[0] & words[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["needle"], "takes DST; given: nothing"),
        (["haystack", "a.json"], "takes SRC DST"),
        (["nothing", "a", "b"], "no data set nothing"),
        (["gsm8k", "a", "b.json", "trainer.seed=1"], "settings are for made-up tasks"),
        (["ledger", "x.txt"], "ends in"),
    ],
)
def test_what_cannot_be_written_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        write_data(words[0], words[1:], DataOptions(), Console(True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (DataOptions(multiple=0, held_out=True), "--multiple 0 must be positive"),
        (DataOptions(multiple=4), "goes with --held-out"),
        (DataOptions(documents=[50]), "go with haystack, not with ledger"),
        (DataOptions(closed_book="http://h/v1"), "go with haystack, not with ledger"),
    ],
)
def test_options_that_would_do_nothing_are_refused(options: DataOptions, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=message):
        write_data("ledger", [str(tmp_path / "t.jsonl")], options, Console(True))


def test_a_seed_makes_other_tasks(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 5), ("c", 5)):
        write_data("ledger", [str(tmp_path / f"{name}.jsonl")], DataOptions(count=3, seed=seed), Console(True))
    a, b, c = ((tmp_path / f"{name}.jsonl").read_text() for name in "abc")
    assert a != b == c


def test_questions_that_need_no_document_are_left_out(shared_data: Path, tmp_path: Path) -> None:
    known = {row["question"]: row["answer"] for row in read_source(str(shared_data / "hotpotqa_sample.json")).rows[:7]}

    def reply(body: dict[str, Any]) -> str:
        question = body["messages"][-1]["content"].rpartition("\n")[2]
        return f"It is {known[question]}." if question in known else "I do not know."

    target = tmp_path / "h.jsonl"
    with running(Outside(reply)) as outside:
        options = DataOptions(documents=[12], closed_book=outside.url)
        count, _ = write_data(
            "haystack", [str(shared_data / "hotpotqa_sample.json"), str(target)], options, Console(True)
        )
    asked = {row["extra_info"]["question"] for _, row in read_rows(target)}
    assert count == 60 - 7
    assert not asked & known.keys()
    gone = DataOptions(documents=[12], closed_book="http://127.0.0.1:9/v1")
    with pytest.raises(BadInput, match=r"127\.0\.0\.1:9"):
        write_data(
            "haystack", [str(shared_data / "hotpotqa_sample.json"), str(tmp_path / "x.jsonl")], gone, Console(True)
        )
