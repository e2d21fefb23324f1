"""HotpotQA in long documents: places that do not give the answer away, and items that need no memory of their size."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from pathlib import Path

import pytest

from recollect.config.compose import compose
from recollect.data import haystack
from recollect.data.documents import pieces
from recollect.data.haystack import HotpotParagraphs, arrangement, read_source, without, write_haystack
from recollect.data.task_rows import load_tasks
from recollect.files.rows import read_rows
from recollect.types import BadInput


def made(questions: int = 40, own: int = 10) -> HotpotParagraphs:
    rows = [{"id": f"q{i}", "question": f"Question {i}?", "answer": f"a{i}"} for i in range(questions)]
    texts = [f"Title {k}\nText of paragraph {k}." for k in range(questions * own)]
    places = [list(range(i * own, (i + 1) * own)) for i in range(questions)]
    return HotpotParagraphs(rows, texts, places, [p[:2] for p in places])


def test_real_questions_become_documents_of_their_size(shared_data: Path, tmp_path: Path) -> None:
    source = read_source(str(shared_data / "hotpotqa_sample.json"))
    assert write_haystack(source, tmp_path / "h.parquet", [12, 50]) == 2 * len(source.rows)
    cfg = compose(None, [f"data.train_files=[{tmp_path / 'h.parquet'}]"])
    tasks = load_tasks(cfg, cfg.data.train_files)
    assert {t.fields["extra_info"]["num_docs"] for t in tasks} == {12, 50}
    for task in tasks:
        size, needed = task.fields["extra_info"]["num_docs"], task.fields["extra_info"]["needed"]
        assert task.context.count("Document ") >= size
        assert f"\n\nDocument {size}:\n" in task.context
        assert len(needed) == 2
        assert task.answers


def test_places_are_drawn_per_item_and_do_not_depend_on_the_others() -> None:
    source = made()
    places: Counter[int] = Counter()
    for i in range(len(source.rows)):
        ids = arrangement(source, i, 50, seed=0)
        assert len(set(ids)) == 50
        assert set(source.places[i]) <= set(ids)
        places.update(ids.index(p) for p in source.needed[i])
    assert len(places) > 30  # 80 draws from 50 places
    assert max(places.values()) <= 7
    fewer = without(source, [i != 7 for i in range(len(source.rows))])
    assert arrangement(fewer, 0, 50, seed=0) == arrangement(source, 7, 50, seed=0)
    assert arrangement(source, 7, 50, seed=1) != arrangement(source, 7, 50, seed=0)


def test_what_is_needed_stays_in_small_documents() -> None:
    source = made()
    for size in (2, 3, 9):
        assert set(source.needed[4]) <= set(arrangement(source, 4, size, 0))


def test_a_source_that_is_too_small_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="the source has 400"):
        write_haystack(made(), tmp_path / "h.parquet", [500])
    with pytest.raises(BadInput, match="nothing is left"):
        without(made(2), [True, True])
    assert not list(tmp_path.iterdir())


def test_a_very_long_item_is_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = "word " * 120
    source = made(questions=2600)
    source.texts[:] = [f"{text} {long}" for text in source.texts]
    file = tmp_path / "long.parquet"
    few = without(source, [i >= 2 for i in range(2600)])
    write_haystack(few, file, [25_600])
    row = next(row for _, row in read_rows(file))
    assert row["context"] is None
    cfg = compose(None, [f"data.train_files=[{file}]"])
    task = load_tasks(cfg, [str(file)])[0]
    tracemalloc.start()
    read = sum(len(piece) for piece in pieces(task.context))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert read > 25_600 * len(long)
    assert peak < 2_000_000
    monkeypatch.setattr(haystack, "STREAMED", 10**6)
    whole = haystack.haystack_row(few, 0, 25_600, 0, "")
    assert "".join(pieces(task.context)) == whole["context"]


def test_a_missing_or_foreign_file_of_paragraphs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(haystack, "STREAMED", 5)
    file = tmp_path / "h.jsonl"
    write_haystack(made(), file, [20])
    cfg = compose(None, [f"data.train_files=[{file}]"])
    assert "Document 20:" in "".join(pieces(load_tasks(cfg, [str(file)])[0].context))
    moved = tmp_path / "elsewhere" / "h.jsonl"
    moved.parent.mkdir()
    file.rename(moved)
    with pytest.raises(BadInput, match="no paragraphs at"):
        load_tasks(cfg, [str(moved)])
