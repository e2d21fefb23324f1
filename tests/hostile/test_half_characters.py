"""Half a character (``\\ud800``) in files, requests, calls and answers: refused by name, or a question mark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recollect.eval.items import Item, ItemLog
from recollect.files.half_characters import has_half, line_of_half, made_whole, says_half
from recollect.files.reading import parse_json
from recollect.policies.http_replies import _sent
from recollect.runs.directory import dump
from recollect.serve.bodies import parsed
from recollect.serve.protocol import BadRequest, clipped
from recollect.trajectories.formats.conversations import _call
from recollect.types import BadInput
from recollect.workflows.rollout.generate import Store
from tests import commands

HALVES = [r"\ud800", r"\uDFFF", r"\udc00\ud800", r"a\ud83d b", r"\ud83d\ud83d\ude00"]
WHOLE = [r"\ud83d\ude00", r"\u00e9", r"\\ud800", "😀"]


@pytest.mark.parametrize("text", HALVES)
@pytest.mark.parametrize("form", ['"{}"', '{{"{}": 1}}', '{{"a": [{{"b": ["{}"]}}]}}'])
def test_half_characters_are_found_wherever_they_are(form: str, text: str) -> None:
    with pytest.raises(BadInput, match=r"rows: broken JSON at line 7: it holds half a character"):
        parse_json(form.format(text).encode(), "rows", 7)
    with pytest.raises(BadInput, match="broken JSON at line 3: it holds half"):
        parse_json('[1,\n"😀\\ud83d\\ude00",\n' + form.format(text) + "]", "rows")
    assert not has_half(made_whole(json.loads(form.format(text))))
    assert parse_json(dump(json.loads(form.format(text))), "rows") is not None


@pytest.mark.parametrize("text", WHOLE)
def test_whole_characters_are_not(text: str) -> None:
    value = parse_json(f'["{text}"]', "rows")
    assert value == json.loads(f'["{text}"]')
    assert not says_half(text, value)
    assert dump(value) == json.dumps(value)


def test_bytes_that_are_half_a_character_are_not_utf_8() -> None:
    with pytest.raises(BadInput, match="not UTF-8"):
        parse_json(b'{"a": "\xed\xa0\x80"}', "rows")


def test_the_line(tmp_path: Path) -> None:
    assert line_of_half('["\\ud83d\\ude00",\n"\\ud800"]') == 2


# ---- commands ----

ROW = {"id": "1", "question": "2 + 2?", "answer": "4", "context": "Two and two are four."}
RECORD = {"task_id": "1", "question": "2 + 2?", "domain": "math", "actions": [], "final_answer": "4", "success": True}


ROLLOUT = ["rollout", "--domain", "math", "--policy", "expert", "--data", "rows.jsonl", "--out", "o.jsonl"]


@pytest.mark.parametrize(
    ("args", "key"),
    [
        *((ROLLOUT, key) for key in ("question", "answer", "context", "other", "\ud800")),
        (["train", "data.train_files=rows.jsonl", "--dry-run"], "question"),
        (["train", "data.val_files=rows.jsonl", "--dry-run"], "question"),
        (["eval", "tiny", "data.val_files=rows.jsonl"], "answer"),
    ],
    ids=lambda given: ascii(given)[:30],
)
def test_rows_are_refused_by_file_and_line(args: list[str], key: str, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROW) + "\n" + json.dumps({**ROW, "id": "2", key: "a\ud800"}) + "\n")
    done = commands.run(*args, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "rows.jsonl: broken JSON at line 2: it holds half a character" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["rows.jsonl"]


@pytest.mark.parametrize(
    "args",
    [["convert", "some.jsonl", "--out", "o.jsonl"], ["reward", "some.jsonl"], ["sft-data", "some.jsonl", "--out", "o"]],
    ids=lambda args: args[0],
)
def test_records_are_refused_by_file_and_line(args: list[str], tmp_path: Path) -> None:
    (tmp_path / "some.jsonl").write_text(json.dumps({**RECORD, "question": "a\ud800"}) + "\n")
    done = commands.run(*args, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "some.jsonl, line 1: broken JSON: it holds half a character" in done.stderr
    (tmp_path / "some.jsonl").write_text(
        json.dumps(RECORD) + "\n" + json.dumps({**RECORD, "metadata": "\ud800"}) + "\n"
    )
    done = commands.run(*args, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "some.jsonl, line 2: broken JSON: it holds half a character" in done.stderr


def test_arguments_of_a_call_that_hold_one_stay_as_they_were_written(tmp_path: Path) -> None:
    text = '{"query": "a\\ud800"}'
    call = {"function": {"name": "search", "arguments": text}}
    assert _call(call) == ("search", text)
    messages = [
        {"role": "user", "content": "Who?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "found"},
        {"role": "assistant", "content": "Bob"},
    ]
    (tmp_path / "some.jsonl").write_text(json.dumps({"domain": "mhqa", "messages": messages}) + "\n")
    for args in (["convert", "some.jsonl", "--out", "o.jsonl"], ["sft-data", "some.jsonl", "--out", "o"]):
        assert commands.run(*args, cwd=tmp_path).returncode == 0
    done = commands.run("sft", "data.train_files=some.jsonl", cwd=tmp_path)
    assert done.returncode == 2
    assert "some.jsonl, line 1: a tool call has a name and arguments" in done.stderr


# ---- what a model or a tool brings ----


def test_what_was_sampled_is_stored_with_a_question_mark(tmp_path: Path) -> None:
    store = Store(tmp_path / "o.jsonl", "plan")
    store.add("a", 0, {"metadata": {"task_id": "a", "sample": 0}, "actions": [{"input": {"q": "x\ud800"}}]})
    store.finish([("a", 0)])
    assert json.loads((tmp_path / "o.jsonl").read_text())["actions"] == [{"input": {"q": "x?"}}]


def test_an_answer_is_kept_by_an_evaluation(tmp_path: Path) -> None:
    log = ItemLog(tmp_path / "items.jsonl", "stamp")
    log.add(Item("a", 0, "s", 0, "x\ud800", 0.0))
    assert ItemLog(tmp_path / "items.jsonl", "stamp").items["a", 0].answer == "x?"


def test_a_request_to_an_endpoint() -> None:
    sent = _sent({"messages": [{"content": "a\ud800"}]})
    assert json.loads(sent["content"]) == {"messages": [{"content": "a?"}]}
    assert sent["headers"]["Content-Type"] == "application/json"
    assert "content" not in _sent(None)


# ---- the server ----


def body(**values: Any) -> bytearray:
    return bytearray(json.dumps({"prompt": "a", **values}).encode())


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"model": "m\ud800"}, "model"),
        ({"prompt": "\ud800"}, "prompt"),
        ({"prompt": ["a", "\ud800"]}, "prompt"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages"),
        ({"messages": [{"role": "\ud800", "content": "a"}]}, "messages"),
        ({"stop": ["\ud800"]}, "stop"),
        ({"tools": [{"type": "function", "function": {"name": "\ud800"}}]}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"\ud800": 1}}}]}, "tools"),
        ({"odd\ud800": 1}, "odd?"),
        ({"odd": {"\udc00": 1}}, "odd"),
        ({"user": "\ud800"}, "user"),
        ({"response_format": {"type": "\ud800"}}, "response_format"),
    ],
    ids=lambda given: ascii(given)[:40],
)
def test_a_request_is_refused_by_name(given: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest, match="half a character") as caught:
        parsed(body(**given), 10_000)
    assert caught.value.param == param
    str(caught.value).encode()


def test_what_an_error_repeats_can_be_sent() -> None:
    clipped("a\ud800").encode()
    clipped("a" * 99 + "\ud800" * 99).encode()
