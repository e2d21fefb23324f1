"""Which columns are read, CSV, patterns, and keys that are mistyped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recollect.agents.first_prompt import first_messages
from recollect.config import Config
from recollect.config.compose import compose
from recollect.data.task_rows import as_task, load_tasks
from recollect.files.rows import expand, read_rows
from recollect.types import BadInput, Message
from tests.data.test_task_rows import config, write


def chatting(**data: Any) -> Config:
    cfg = config(**data)
    cfg.agent.agent_type = "hf"
    return cfg


@pytest.mark.parametrize("name", ["question", "prompt", "instruction", "problem"])
def test_usual_names_of_the_question(name: str) -> None:
    assert as_task({name: "Who?", "answer": "mira"}, "line 1", 0, chatting()).question == "Who?"


def test_messages() -> None:
    talk = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Who?"}]},
        {"role": "assistant", "content": "mira"},
    ]
    task = as_task({"messages": talk, "answer": "mira", "level": 3}, "line 1", 0, chatting())
    assert task.question == "Who?"
    assert task.fields["messages"] == talk
    assert first_messages(task, chatting()) == [Message("system", "Be brief."), Message("user", "Who?")]
    beside = as_task({"question": "What?", "messages": talk, "answer": "mira"}, "line 1", 0, chatting())
    assert first_messages(beside, chatting()) == [Message("user", "What?")]
    assert task.fields["level"] == 3
    with pytest.raises(BadInput, match="no text"):
        as_task({"messages": talk[:1], "answer": "mira"}, "line 1", 0, chatting())


@pytest.mark.parametrize("key", ["prompt_key", "answer_key"])
def test_a_mistyped_key_is_not_another_column(key: str) -> None:
    row = {
        "question": "Who?",
        "prompt": "Who?",
        "answer": "mira",
        "answers": ["mira"],
        "reward_model": {"ground_truth": "x"},
    }
    with pytest.raises(BadInput, match=rf"line 1: .*data.{key}=qestion; it has question"):
        as_task(row, "line 1", 0, chatting(**{key: "qestion"}))


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"answer": "a"}, ("a",)),
        ({"answers": ["a", "b"]}, ("a", "b")),
        ({"golden_answers": ["a"]}, ("a",)),
        ({"answer": 5}, ("5",)),
        ({"answer": 0}, ("0",)),
        ({"reward_model": {"ground_truth": {"target": ["a", "b"]}}}, ("a", "b")),
        ({"answer": ["a", None, ""]}, ("a",)),
    ],
)
def test_accepted_answers(row: dict[str, Any], expected: tuple[str, ...]) -> None:
    assert as_task({"question": "q", **row}, "line 1", 0, chatting()).answers == expected


def test_an_object_is_not_taken_for_a_list_of_answers() -> None:
    with pytest.raises(BadInput, match="line 1: the accepted answer is an object"):
        as_task({"question": "q", "answer": {"value": "a"}}, "line 1", 0, chatting())


def test_rewards_without_a_gold_need_no_answer() -> None:
    cfg = chatting()
    for name, fine in (("code_reward", True), ("[format*0.5,tool_use*0.5]", True), ("[format*0.5,f1]", False)):
        cfg.agent.reward_name = name
        if fine:
            assert as_task({"question": "q", "tests": ["assert f() == 1"]}, "line 1", 0, cfg).fields["tests"]
        else:
            with pytest.raises(BadInput, match="no accepted answer"):
                as_task({"question": "q"}, "line 1", 0, cfg)


@pytest.mark.parametrize(("name", "comma"), [("rows.csv", ","), ("rows.tsv", "\t")])
def test_tables(name: str, comma: str, tmp_path: Path) -> None:
    path = tmp_path / name
    lines = [
        ["question", "context", "answer", "level"],
        ['"Who, then?"', '"two\nlines"', "mira", "3"],
        ["What?", "é 漢" * 60_000, "472", ""],
    ]
    path.write_text("\ufeff" + "\r\n".join(comma.join(line) for line in lines) + "\r\n\r\n", encoding="utf-8")
    first, second = load_tasks(Config(), [str(path)])
    assert (first.question, first.context, first.answers, first.fields["level"]) == (
        "Who, then?",
        "two\nlines",
        ("mira",),
        "3",
    )
    assert len(second.context) == 180_000
    assert "level" not in second.fields
    assert [place.rsplit(", ")[-1] for place, _ in read_rows(path)] == ["line 3", "line 4"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("question,answer\na,b,c\n", "line 2: 3 values for 2 columns"),
        ("question,answer\na\n", "line 2: 1 values for 2 columns"),
        ("question,question\na,b\n", "line 1: the columns need names"),
        ("question,\na,b\n", "line 1: the columns need names"),
        ('question,answer\n"a,b\n', "line 2: broken CSV"),
        ('question,answer\n"a"b,c\n', "line 2: broken CSV"),
        (b"question,answer\ncaf\xe9,b\n", "not UTF-8"),
        ("question,answer\n", "the data is empty"),
        ("", "the data is empty"),
    ],
)
def test_tables_that_cannot_work(text: str | bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(BadInput, match=rf"rows.csv.*{words}"):
        load_tasks(chatting(), [str(tmp_path / "rows.csv")])


def test_patterns(tmp_path: Path) -> None:
    row = {"question": "q", "answer": "a"}
    for name in ("b.jsonl", "a.jsonl", "c.json", "[x].jsonl"):
        write(tmp_path / name, [{**row, "id": name}])
    ids = lambda *paths: [t.id for t in load_tasks(chatting(), [str(tmp_path / p) for p in paths])]
    assert ids("[ab].jsonl") == ["a.jsonl", "b.jsonl"]
    assert ids("c.json", "?.jsonl") == ["c.json", "a.jsonl", "b.jsonl"]
    assert ids("[x].jsonl") == ["[x].jsonl"]  # a file of that name goes before the pattern
    assert expand([f"{tmp_path}/**/*.json"]) == [f"{tmp_path}/c.json"]
    with pytest.raises(BadInput, match=r"no data file matches .*\*.csv"):
        expand([f"{tmp_path}/*.csv"])


def test_json_with_a_byte_order_mark(tmp_path: Path) -> None:
    for name, text in (
        ("a.json", '[{"question": "q", "answer": "a"}]'),
        ("a.jsonl", '{"question": "q", "answer": "a"}'),
    ):
        (tmp_path / name).write_text("\ufeff" + text, encoding="utf-8")
        assert load_tasks(chatting(), [str(tmp_path / name)])[0].question == "q"


@pytest.mark.parametrize(
    ("row", "key", "hint"),
    [
        ({"prompt": [{"role": "user", "content": "q"}]}, "problem", "(data.prompt_key=prompt takes `prompt`)"),
        ({"prompt": [{"role": "system", "content": "q"}]}, "question", "(`prompt` holds no text, nor a message of the"),
        ({"other": "q"}, "question", "it has other, answer"),
    ],
)
def test_a_row_without_a_question_says_where_it_may_be(row: dict[str, Any], key: str, hint: str) -> None:
    cfg = compose(None, ["agent.agent_type=chat", f"data.prompt_key={key}"])
    with pytest.raises(BadInput) as caught:
        as_task({**row, "answer": "a"}, "f, line 1", 0, cfg)
    assert f"f, line 1: no text under data.prompt_key={key}" in str(caught.value)
    assert hint in str(caught.value)


def test_a_prompt_of_messages_needs_no_key() -> None:
    row = {"prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "What?"}], "answer": "a"}
    assert as_task(row, "f", 0, compose(None, ["agent.agent_type=chat"])).question == "What?"
