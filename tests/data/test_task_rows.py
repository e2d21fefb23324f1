"""Tasks from files that users bring: every format, MemAgent's columns, and errors that say where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.config import Config
from recollect.data.task_rows import as_task, load_tasks
from recollect.files.rows import read_rows
from recollect.sources.task_stream import TaskStream, held_out, sources
from recollect.tasks.needle import chunks_at
from recollect.types import BadInput

ROWS: list[dict[str, Any]] = [
    {"id": "a", "question": "Who?", "context": "mira holds 472.", "answer": "mira", "level": 3},
    {"id": "b", "question": "What, 漢?", "context": "kolu\n" * 3, "answer": ["472", "four"], "source": "s"},
]


def write(path: Path, rows: Any) -> str:
    if path.suffix == ".json":
        path.write_text(json.dumps(rows), encoding="utf-8")
    elif path.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        path.write_text("\n".join(json.dumps(r) for r in rows) + "\n\n", encoding="utf-8")
    return str(path)


def config(**data: Any) -> Config:
    cfg = Config()
    for key, value in data.items():
        setattr(cfg.data, key, value)
    return cfg


def many(count: int) -> list[dict[str, Any]]:
    return [{"id": f"row{i}", "question": f"q{i}", "context": f"c{i}", "answer": str(i)} for i in range(count)]


@pytest.mark.parametrize("name", ["rows.json", "rows.jsonl", "rows.ndjson"])
def test_json_and_jsonl(name: str, tmp_path: Path) -> None:
    first, second = load_tasks(Config(), [write(tmp_path / name, ROWS)])
    assert (first.id, first.question, first.context, first.answers) == ("a", "Who?", "mira holds 472.", ("mira",))
    assert (first.source, second.source) == ("default", "s")
    assert second.answers == ("472", "four")
    assert second.question == "What, 漢?"
    assert first.fields["level"] == 3
    assert "context" not in first.fields  # documents are long and rewards do not need them twice


def test_parquet(tmp_path: Path) -> None:
    rows = [{**r, "answer": [r["answer"]] if isinstance(r["answer"], str) else r["answer"]} for r in ROWS]
    tasks = load_tasks(Config(), [write(tmp_path / "rows.parquet", rows)])
    assert [t.answers for t in tasks] == [("mira",), ("472", "four")]
    assert [t.context for t in tasks] == [r["context"] for r in ROWS]
    assert [place for place, _ in read_rows(tmp_path / "rows.parquet")][1].endswith("row 2")


@pytest.mark.parametrize("name", ["rows.json", "rows.jsonl", "rows.parquet"])
def test_memagent_columns(name: str, tmp_path: Path) -> None:
    row = {
        "data_source": "hotpotqa",
        "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"}],
        "context": "Document 1:\nmira",
        "reward_model": {"style": "rule", "ground_truth": ["mira", "Mira"]},
        "extra_info": {"index": 7},
    }
    (task,) = load_tasks(config(prompt_key="prompt"), [write(tmp_path / name, [row])])
    assert (task.question, task.answers, task.source) == ("Who?", ("mira", "Mira"), "hotpotqa")
    assert load_tasks(Config(), [str(tmp_path / name)])[0].question == "Who?"  # without naming the key, too
    row["reward_model"] = {"style": "rule", "ground_truth": "mira"}
    (task,) = load_tasks(Config(), [write(tmp_path / name, [row])])
    assert task.answers == ("mira",)


def test_keys_can_be_named(tmp_path: Path) -> None:
    rows = [{"q": "Who?", "text": "mira", "gold": 5, "question": "not this"}]
    cfg = config(prompt_key="q", context_key="text", answer_key="gold")
    (task,) = load_tasks(cfg, [write(tmp_path / "r.jsonl", rows)])
    assert (task.question, task.context, task.answers, task.id) == ("Who?", "mira", ("5",), "0")


ROW = '{"question": "a", "context": "b", "answer": "c"}'
BAD_FILES = {
    "missing": ("gone.jsonl", None, "no data file at .*gone.jsonl"),
    "extension": ("rows.txt", "a,b", "rows.txt: data files end in"),
    "broken json": ("rows.json", '[{"question": "a"},\n {"question": }]', "rows.json: broken JSON at line 2"),
    "broken jsonl": ("rows.jsonl", ROW + '\n\n{"a": \n', "rows.jsonl: broken JSON at line 3"),
    "not a list": ("rows.json", '{"question": "a"}', "expected a JSON array of objects, found dict"),
    "not objects": ("rows.json", f"[{ROW}, 3]", "row 2: expected an object, found int"),
    "not an object": ("rows.jsonl", "[1]\n", "line 1: expected an object, found list"),
    "latin json": ("rows.json", b'["caf\xe9"]', "not UTF-8"),
    "latin jsonl": ("rows.jsonl", ROW.encode() + b'\n{"a": "caf\xe9"}\n', "broken JSON at line 2"),
    "not parquet": ("rows.parquet", "hello", "rows.parquet is not a parquet file"),
    "empty parquet": ("rows.parquet", "", "rows.parquet is not a parquet file"),
    "empty json": ("rows.json", "[]", "rows.json: the data is empty"),
    "empty jsonl": ("rows.jsonl", "\n \n", "rows.jsonl: the data is empty"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_files_that_cannot_work(case: str, tmp_path: Path) -> None:
    name, text, words = BAD_FILES[case]
    if text is not None:
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(BadInput, match=words):
        load_tasks(Config(), [str(tmp_path / name)])


GOOD = {"question": "Who?", "context": "mira", "answer": "mira"}
BAD_ROWS: dict[str, tuple[dict[str, Any], str]] = {
    "no question": ({"question": ...}, "data.prompt_key=question; it has context, answer"),
    "blank question": ({"question": " \n"}, "data.prompt_key=question"),
    "no messages": ({"question": []}, "data.prompt_key=question"),
    "messages without content": ({"question": [{"role": "user"}]}, "data.prompt_key=question"),
    "no document": ({"context": ...}, "no document under data.context_key=context; it has question, answer"),
    "empty document": ({"context": ""}, "an empty document under data.context_key=context"),
    "blank document": ({"context": " \n\t"}, "an empty document under data.context_key=context"),
    "null document": ({"context": None}, "document under data.context_key=context"),
    "no answer": ({"answer": ...}, "no accepted answer under data.answer_key=answer; it has question, context"),
    "null answer": ({"answer": None}, "no accepted answer"),
    "no answers": ({"answer": []}, "no accepted answer"),
    "empty ground truth": ({"answer": ..., "reward_model": {"ground_truth": None}}, "no accepted answer"),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_rows_that_cannot_work_are_named(case: str, tmp_path: Path) -> None:
    change, words = BAD_ROWS[case]
    row = {k: v for k, v in {**GOOD, **change}.items() if v is not ...}
    with pytest.raises(BadInput, match=rf"rows.jsonl, line 2: .*{words}"):
        load_tasks(Config(), [write(tmp_path / "rows.jsonl", [GOOD, row])])


@pytest.mark.parametrize("answer", ["", "  ", ["", ""], [None]], ids=repr)
def test_a_blank_accepted_answer_is_refused(answer: Any) -> None:
    """No answer could ever be right, so the task would silently never give a reward."""
    with pytest.raises(BadInput, match="no accepted answer"):
        as_task({**GOOD, "answer": answer}, "rows.jsonl, line 1", 0, Config())


def test_a_document_that_is_not_text_is_not_called_empty() -> None:
    """HotpotQA's own format has a list there; the message must not send the user to look for an empty document."""
    with pytest.raises(BadInput, match=r"context_key=context") as caught:
        as_task({**GOOD, "context": [["title", ["sentence"]]]}, "rows.json, row 1", 0, Config())
    assert "empty" not in str(caught.value)


def test_text_that_is_not_unicode_is_refused_or_can_be_tokenised(tmp_path: Path, tokenizer: Any) -> None:
    """JSON can spell half of a surrogate pair, which no tokenizer takes."""
    path = tmp_path / "rows.jsonl"
    path.write_text('{"question": "Who?", "context": "mira \\ud83d kolu", "answer": "mira"}\n')
    refused: str | None = None
    try:
        (task,) = load_tasks(Config(), [str(path)])
    except BadInput as error:
        refused = str(error)
    if refused is None:
        tokenizer.backend_tokenizer.encode(task.context)
    else:
        assert "line 1" in refused


def test_agents_without_documents_need_no_context() -> None:
    cfg = Config()
    cfg.agent.agent_type = "package.module:function"
    assert as_task({"question": "Who?", "answer": "mira"}, "line 1", 0, cfg).context is None


IDS = st.lists(st.sampled_from(["a", "b", "a#1", "a#2", "a#3", "b#2", 1, "1"]), min_size=1, max_size=8)


@settings(max_examples=200)
@given(ids=IDS)
def test_duplicate_ids_are_made_unique(ids: list[Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "ids.jsonl"
    tasks = load_tasks(Config(), [write(path, [{**GOOD, "id": i} for i in ids])])
    assert len({t.id for t in tasks}) == len(tasks)
    assert tasks[0].id == str(ids[0])


def test_several_files_are_one_data_set(tmp_path: Path) -> None:
    paths = [write(tmp_path / "one.jsonl", [GOOD] * 2), write(tmp_path / "two.json", [{**GOOD, "source": "x"}] * 2)]
    tasks = load_tasks(Config(), paths)
    assert len({t.id for t in tasks}) == 4
    assert sources(tasks) == ["default", "x"]


# ---- the stream ----


@settings(max_examples=30, deadline=None)
@given(rows=st.integers(1, 12), size=st.integers(1, 12), seed=st.integers(0, 5), shuffle=st.booleans())
def test_every_epoch_covers_distinct_rows(
    rows: int, size: int, seed: int, shuffle: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = write(tmp_path_factory.getbasetemp() / "stream.jsonl", many(rows))
    cfg = config(train_files=[path], train_batch_size=size, shuffle=shuffle)
    cfg.trainer.seed = seed
    if size > rows:
        with pytest.raises(BadInput, match=rf"{rows} tasks, fewer than data.train_batch_size={size}"):
            TaskStream(cfg)
        return
    stream, again, steps = TaskStream(cfg), TaskStream(cfg), rows // size
    for epoch in range(3):
        taken = [t.id for step in range(steps) for t in stream.take(epoch * steps + step)]
        assert len(taken) == len(set(taken)) == steps * size
    for step in reversed(range(3 * steps)):  # in any order, from a fresh stream: the step alone decides
        assert [t.id for t in again.take(step)] == [t.id for t in stream.take(step)]


def test_shuffle_differs_per_epoch_and_seed(tmp_path: Path) -> None:
    cfg = config(train_files=[write(tmp_path / "r.jsonl", many(20))], train_batch_size=20)
    order = lambda step: [t.id for t in TaskStream(cfg).take(step)]
    epochs = [order(e) for e in range(4)]
    assert len({tuple(e) for e in epochs}) == 4
    cfg.trainer.seed = 1
    assert order(0) != epochs[0]
    cfg.data.shuffle = False
    assert order(0) == order(1) == [f"row{i}" for i in range(20)]


def test_made_up_tasks_never_repeat_and_grow(tmp_path: Path) -> None:
    cfg = Config()
    cfg.data.train_batch_size = 5
    cfg.data.needle.chunks, cfg.data.needle.start_chunks, cfg.data.needle.grow_steps = 9, 1, 4
    assert [chunks_at(cfg, step) for step in range(6)] == [1, 3, 5, 7, 9, 9]
    stream = TaskStream(cfg)
    ids = [t.id for step in range(6) for t in stream.take(step)]
    assert len(set(ids)) == 30
    assert stream.take(3) == TaskStream(cfg).take(3)


def test_validation_tasks(tmp_path: Path) -> None:
    cfg = Config()
    assert len(held_out(cfg)) == 256
    cfg.evaluation.tasks[0] = 5  # before and after training the same tasks are measured
    assert len(held_out(cfg)) == 5
    assert len(held_out(cfg, 4, 3)) == 3
    assert len(held_out(cfg, 4, 3)[0].context) > 3 * len(held_out(cfg, 1, 3)[0].context)
    cfg.data.train_files = [write(tmp_path / "train.jsonl", many(4))]
    assert held_out(cfg) == []  # made-up documents say nothing about the user's own
    cfg.data.val_files = [write(tmp_path / "val.jsonl", many(7))]
    assert len(held_out(cfg)) == 7
    cfg.data.val_max_samples = 3
    assert [t.id for t in held_out(cfg)] == ["row0", "row1", "row2"]


def test_real_questions(shared_data: Path, tmp_path: Path, tokenizer: Any) -> None:
    from recollect.agents.session import token_offsets
    from recollect.data.documents import sections

    items = json.loads((shared_data / "hotpotqa_sample.json").read_text())
    rows = [
        {
            "prompt": [{"role": "user", "content": item["question"]}],
            "context": "\n\n".join(f"{title}\n{''.join(lines)}" for title, lines in item["context"]),
            "reward_model": {"ground_truth": item["answer"]},
            "data_source": "hotpotqa",
        }
        for item in items
    ]
    for name in ("real.parquet", "real.jsonl"):
        tasks = load_tasks(Config(), [write(tmp_path / name, rows)])
        assert [t.question for t in tasks] == [i["question"] for i in items]
        assert [t.answers for t in tasks] == [(i["answer"],) for i in items]
        assert len({t.id for t in tasks}) == len(items)
    for task in tasks[:10]:
        parts = list(sections(task.context, lambda text: token_offsets(tokenizer, text), 500, "sentence"))
        assert "".join(parts).rstrip() == task.context.rstrip()
        assert len(parts) > 1
