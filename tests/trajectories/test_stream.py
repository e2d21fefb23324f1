"""Reading: JSON is streamed wherever it is cut, and what is broken is told with its place."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.trajectories import scan
from recollect.trajectories import stream as streaming
from recollect.trajectories.scan import CutOff, values
from recollect.trajectories.stream import Found, files_of, records, units
from recollect.types import BadInput
from tests.trajectories.made import anything


def read(path: Path) -> list[Found]:
    return [found for unit in units([path]) for piece in unit for found in records(piece)]


@pytest.mark.parametrize("block", [1, 2, 7, 4096])
@given(
    items=st.lists(st.dictionaries(st.text(max_size=4), anything, max_size=3), max_size=4),
    indent=st.none() | st.just(2),
)
def test_values_are_found_wherever_blocks_end(block: int, items: list[Any], indent: int | None) -> None:
    before, scan.BLOCK = scan.BLOCK, block
    try:
        text = json.dumps(items, indent=indent, ensure_ascii=False).encode("utf-8", "surrogatepass")
        found = [json.loads(v.decode("utf-8", "surrogatepass")) for _, v in values(io.BytesIO(text))]
        assert found == items
        row = b" \n".join(json.dumps(i).encode() for i in items)
        assert [json.loads(v) for _, v in values(io.BytesIO(row))] == items
    finally:
        scan.BLOCK = before


@given(st.binary(max_size=60))
def test_no_bytes_hang_or_crash_the_scanner(data: bytes) -> None:
    try:
        for place, text in values(io.BytesIO(data)):
            assert data[place : place + len(text)] == text
    except CutOff as error:
        start = error.start
    else:
        start = 0
    assert 0 <= start <= len(data)


def test_a_cut_array_gives_what_stands_before_the_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('[{"a": 1},\n {"a": 2},\n {"a": "x')
    found = read(path)
    assert [f.value for f in found[:2]] == [{"a": 1}, {"a": 2}]
    assert found[2].where == f"{path}, record 3, line 3"
    assert "cut off" in found[2].wrong


@pytest.mark.parametrize("form", ["lines", "array", "pretty"])
def test_large_files_in_pieces_have_the_same_records_and_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr(streaming, "BLOCK", 100)
    monkeypatch.setattr(scan, "BLOCK", 64)
    rows = [{"n": i, "text": "x" * (i % 50) + '"{[\\'} for i in range(60)]
    path = tmp_path / ("a.jsonl" if form == "lines" else "a.json")
    text = (
        "\n".join(map(json.dumps, rows))
        if form == "lines"
        else json.dumps(rows, indent=2 if form == "pretty" else None)
    )
    path.write_text(text)
    assert len(list(units([path]))) > 5
    found = read(path)
    assert [f.value for f in found] == rows
    assert [f.place for f in found] == [f"{'line' if form == 'lines' else 'record'} {i}" for i in range(1, 61)]
    cut = text[: len(text) // 2]
    path.write_text(cut)
    half = read(path)
    assert half[-1].wrong
    assert [f.value for f in half[:-1]] == rows[: len(half) - 1]
    if form != "lines":
        start = json.dumps(rows[len(half) - 1]["n"])
        line = cut.count("\n", 0, cut.rfind(f'"n": {start}')) + 1
        assert half[-1].place.rpartition(" ")[2] in (str(line), str(line - 1))


def test_other_encodings_and_broken_lines_are_told(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes('\ufeff{"a": "é"}\n'.encode() + '{"a": "é"}\n'.encode("latin-1") + b'{"a": \n\n{"a": 1}\n')
    found = read(path)
    assert [f.value for f in found] == [{"a": "é"}, None, None, {"a": 1}]
    assert "not UTF-8" in found[1].wrong
    assert found[1].where == f"{path}, line 2"
    assert "cut off" in found[2].wrong
    wide = tmp_path / "b.json"
    wide.write_bytes('{"a": 1}'.encode("utf-16"))
    assert "UTF-16" in read(wide)[0].wrong
    empty = tmp_path / "c.json"
    empty.write_text(" ")
    assert read(empty)[0].wrong == "it is empty"


def test_one_object_a_list_of_messages_and_compressed_files(tmp_path: Path) -> None:
    import zstandard

    one, talk = tmp_path / "one.json", tmp_path / "talk.json"
    one.write_text(json.dumps({"a": 1}, indent=4))
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    talk.write_text(json.dumps(messages))
    assert [f.value for f in read(one)] == [{"a": 1}]
    assert [f.value for f in read(talk)] == [{"messages": messages}]
    for name, pack in (("x.jsonl.gz", gzip.compress), ("x.jsonl.zst", zstandard.ZstdCompressor().compress)):
        path = tmp_path / name
        path.write_bytes(pack(b'{"a": 1}\n{"a": 2}\n'))
        assert [f.value for f in read(path)] == [{"a": 1}, {"a": 2}]
        path.write_bytes(path.read_bytes()[:-5])
        assert any(f.wrong for f in read(path))


def test_names_patterns_and_folders(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("b.json", "in/a.jsonl", "in/c.txt", ".hidden.json"):
        (tmp_path / name).write_text("{}")
    names = lambda *given: [str(p.relative_to(tmp_path)) for p in files_of([str(tmp_path / g) for g in given])]
    assert names(".") == ["b.json", "in/a.jsonl"]
    assert names("**/*.json*", "b.json") == ["b.json", "in/a.jsonl"]
    assert names("in/c.txt") == ["in/c.txt"]
    for wrong in ("nothing.json", "*.csv"):
        with pytest.raises(BadInput):
            names(wrong)
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="without trajectories"):
        names("empty")
