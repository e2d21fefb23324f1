"""`recollect data locomo`: reading, verifying and splitting conversations."""

from __future__ import annotations

import json
from collections import Counter
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from recollect.config.compose import compose
from recollect.data.conversation_split import asking, count, drawn, split
from recollect.data.locomo import NOT_MENTIONED, read_locomo
from recollect.data.questions import questions_of
from recollect.data.task_rows import load_tasks
from recollect.types import BadInput
from recollect.workflows.data.locomo_files import LocomoOptions, write_locomo
from tests.data.conversations import conversation, write


def test_a_conversation_becomes_sessions_and_questions(tmp_path: Path) -> None:
    row = conversation()
    row["conversation"]["session_1"][1] |= {"blip_caption": "a photo of a brown dog", "img_url": ["x"]}
    row["conversation"]["session_10_date_time"] = "8:00 am on 1 September, 2023"
    row["conversation"]["session_10"] = [{"speaker": "Ana", "dia_id": "D10:1", "text": "Bye"}]
    (found,) = read_locomo(write(tmp_path / "c.json", row))
    assert [s["number"] for s in found.sessions] == [1, 2, 3, 10]
    assert found.sessions[0]["turns"][1]["text"].endswith("dog named Rex. [image: a photo of a brown dog]")
    assert found.speakers == ("Ana", "Ben")
    assert found.questions[4]["answer"] == NOT_MENTIONED
    assert found.observations[0]["evidence"] == ["D1:1"]


BROKEN: list[tuple[str, Any, str]] = [
    ("no sessions", lambda r: [r["conversation"].pop(f"session_{i}") for i in (1, 2, 3)], "there is no session in it"),
    ("no turns", lambda r: r["conversation"].update(session_1="hello"), "expected a list of turns"),
    ("date", lambda r: r["conversation"].update(session_1_date_time="once"), "the date 'once' cannot be read"),
    ("no date", lambda r: r["conversation"].pop("session_2_date_time"), "it has no date"),
    ("category", lambda r: r["qa"][0].update(category=6), "the category 6 is unknown; known: 1 multi-hop"),
    ("category text", lambda r: r["qa"][0].update(category="1"), "the category '1' is unknown"),
    ("category list", lambda r: r["qa"][0].update(category=[1]), "the category [1] is unknown"),
    ("category float", lambda r: r["qa"][0].update(category=1.0), "the category 1.0 is unknown"),
    ("answer", lambda r: r["qa"][0].update(answer=["a", "b"]), "`answer` has to be a text or a number, not a list"),
    ("observations", lambda r: r.update(observation=[1]), "`observation` has to be an object, not a list"),
    (
        "no observations",
        lambda r: r["observation"].update(session_1_observation={"Ana": None}),
        "expected a list of observations for each speaker",
    ),
    ("category true", lambda r: r["qa"][0].update(category=True), "the category True is unknown"),
    ("no answer", lambda r: r["qa"][0].pop("answer"), "which only questions of category 5 may lack"),
    ("no question", lambda r: r["qa"][0].update(question=" "), "expected an object with `question`"),
    ("evidence", lambda r: r["qa"][0].update(evidence="D1:1"), "`evidence` has to be a list"),
    ("qa", lambda r: r.pop("qa"), "expected an object with `conversation` and a list `qa`"),
    ("speaker", lambda r: r["conversation"]["session_1"][0].pop("speaker"), "`speaker` and `text`"),
    (
        "observation",
        lambda r: r["observation"].update(session_1_observation={"Ana": ["x"]}),
        "an observation is a text",
    ),
]


@pytest.mark.parametrize(("spoil", "message"), [b[1:] for b in BROKEN], ids=[b[0] for b in BROKEN])
def test_bad_input_is_one_line(spoil: Any, message: str, tmp_path: Path) -> None:
    row = conversation()
    spoil(row)
    with pytest.raises(BadInput, match="conversation 1") as error:
        read_locomo(write(tmp_path / "c.json", row))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_no_list_and_two_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text("{}")
    with pytest.raises(BadInput, match="expected a list of conversations"):
        read_locomo(tmp_path / "c.json")
    with pytest.raises(BadInput, match="two conversations are named conv-1"):
        read_locomo(write(tmp_path / "d.json", conversation(), conversation()))


def test_defects_are_said_and_the_rest_is_kept(tmp_path: Path) -> None:
    row = conversation()
    row["conversation"]["session_4_date_time"] = "1:00 pm on 9 May, 2023"
    row["qa"][0]["evidence"] = ["D1:1", "D9:99"]
    row["qa"][1]["evidence"] = []
    row["qa"][3]["answer"] = 2022
    row["qa"].append(deepcopy(row["qa"][2]))
    row["qa"][3]["evidence"] = ["D1:2", "D1:2"]
    row["conversation"]["session_2"][0] |= {"dia_id": "D1:2", "text": ""}
    row["conversation"]["session_2_date_time"] = "1:00 pm on 7 May, 2023"
    row["observation"]["session_1_observation"]["Ana"][0][1] = "D7:7"
    said: list[str] = []
    made = write_locomo(str(write(tmp_path / "c.json", row)), tmp_path / "out", LocomoOptions("all"), said.append)
    assert made == 6
    for part in (
        "4 dates for 3 sessions",
        "question 1: there is no turn D9:99, which its evidence names",
        "question 2: it has no evidence",
        "question 4: its answer is a number, 2022",
        "1 of 1 questions of category 5 have no answer",
        "1 question is asked twice",
        "session_2 is dated 7 May 2023, before the session that it follows",
        "2 turns have the id D1:2",
        "turn D1:2 says and shows nothing",
        "question 4: its evidence names D1:2 twice",
        "an observation of session 1 names the turn D7:7, which is not there",
    ):
        assert any(f"defect: conv-1: {part}" in line for line in said), part
    assert len(json.loads((tmp_path / "out" / "card.json").read_text())["defects"]) == 12


def test_every_split_is_disjoint_and_by_conversation(tmp_path: Path) -> None:
    talks = read_locomo(write(tmp_path / "c.json", *(conversation(f"c{i}", 30) for i in range(8))))
    for given in (None, "c1,c2/c3", "c1/c2/c3,c4", "60/20/20", "all", "*/c1/c2"):
        parts = split(talks, given)
        names = [talk.name for part in parts.values() for talk in part]
        assert len(names) == len(set(names)), given
    default = split(talks, None)
    assert (count(default["train"]), count(default["val"]), count(default["test"])) == (600, 150, 450)
    assert [len(part) for part in split(talks, "60/20/20").values()] == [5, 1, 2]
    assert [t.name for t in split(talks, "c1/c2")["test"]] == ["c0", "c3", "c4", "c5", "c6", "c7"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("c1/c1", "c1 is named twice"),
        ("c1/c9", "there is no conversation c9; there are c0, c1"),
        ("memory-r1", "there is no conversation conv-26"),
        ("train", "is unknown; known: memory-r1, all"),
        ("0/0/0", "the shares are all 0"),
        ("98/1/1", "falls in val"),
        ("*/*", "can be there once"),
        (None, "do not give 600 to train on"),
    ],
)
def test_splits_that_cannot_be_are_refused(given: str | None, message: str, tmp_path: Path) -> None:
    talks = read_locomo(write(tmp_path / "c.json", *(conversation(f"c{i}") for i in range(3))))
    with pytest.raises(BadInput, match=message):
        split(talks, given)


def test_too_many_questions_are_refused_with_the_count_there_is(tmp_path: Path) -> None:
    talks = read_locomo(write(tmp_path / "c.json", conversation("c0"), conversation("c1")))
    parts = split(talks, "c0/c1/")
    for part, wanted in (("train", 6), ("val", 0), ("test", 1)):
        with pytest.raises(BadInput, match=rf"--num-{part} {wanted}: its part of the split has \d questions"):
            drawn(parts, {part: wanted}, 0)
    few = drawn(parts, {"train": 3}, 0)
    assert sum(map(len, few["train"].values())) == 3
    assert few == drawn(parts, {"train": 3}, 0)


def test_training_questions_may_be_of_some_categories(tmp_path: Path) -> None:
    source = write(tmp_path / "c.json", conversation("c0", 2), conversation("c1", 2))
    parts = split(read_locomo(source), "c0/c1/")
    some = asking(parts, "1, 4")
    assert {q["category"] for talk in some["train"] for q in talk.questions} == {1, 4}
    assert 0 < count(some["train"]) < count(parts["train"])
    assert some["val"] == parts["val"]
    assert asking(parts, None) == parts
    for wrong in ("6", "1;2", ""):
        with pytest.raises(BadInput, match=f"--train-categories {wrong}: give numbers as in 1,2,3,4 of 1 multi-hop"):
            asking(parts, wrong)
    made = write_locomo(str(source), tmp_path / "out", LocomoOptions("c0/c1/", train_categories="5"), lambda line: None)
    assert made == count(asking(parts, "5")["train"]) + 10


def test_training_tasks_may_have_few_questions(tmp_path: Path) -> None:
    source = write(tmp_path / "c.json", conversation("c0", 2), conversation("c1", 2))
    options = LocomoOptions("c0/c1/", questions=4)
    write_locomo(str(source), tmp_path / "out", options, lambda line: None)
    cfg = compose(None, ["agent.agent_type=concat", "agent.reward_name=memory_qa"])
    tasks = load_tasks(cfg, [str(tmp_path / "out" / "train.jsonl")])
    assert [(t.id, len(questions_of(t))) for t in tasks] == [("c0/1", 4), ("c0/2", 4), ("c0/3", 2)]
    (held_out,) = load_tasks(cfg, [str(tmp_path / "out" / "val.jsonl")])
    assert len(questions_of(held_out)) == 10
    assert not (tmp_path / "out" / "test.jsonl").exists()
    with pytest.raises(BadInput, match="name a new folder"):
        write_locomo(str(source), tmp_path / "out", options, lambda line: None)
    with pytest.raises(BadInput, match="--questions 0 must be at least 1"):
        write_locomo(str(source), tmp_path / "new", LocomoOptions(questions=0), lambda line: None)


def test_the_real_file(shared_data: Path, tmp_path: Path) -> None:
    path = shared_data / "locomo10.json"
    if not path.exists():
        pytest.skip("no locomo10.json here")
    talks = read_locomo(path)
    asked = [q for talk in talks for q in talk.questions]
    assert Counter(q["category"] for q in asked) == {1: 282, 2: 321, 3: 96, 4: 841, 5: 446}
    defects = [line for talk in talks for line in talk.defects]
    raw = [(row, q) for row in json.loads(path.read_text()) for q in row["qa"]]
    ids = {
        r["sample_id"]: {t["dia_id"] for s in r["conversation"].values() if isinstance(s, list) for t in s}
        for r, _ in raw
    }
    lost = sum(e not in ids[row["sample_id"]] for row, q in raw for e in q["evidence"])
    assert sum("there is no turn" in line for line in defects) == lost > 0
    assert sum("it has no evidence" in line for line in defects) == 4
    assert sum("is a number" in line for line in defects) == 6
    assert any("conv-26: 35 dates for 19 sessions" in line for line in defects)
    assert sum(q["category"] == 5 and "given_answer" not in q for q in asked) == 444
    default = split(talks, None)
    assert count(default["train"]) >= 600
    assert count(default["val"]) >= 100
    paper = split(talks, "memory-r1")
    assert [[t.name for t in paper[p]] for p in ("train", "val")] == [["conv-26"], ["conv-30"]]
    assert len(paper["test"]) == 8
    assert count(split(talks, "all")["test"]) == 1986
    with pytest.raises(BadInput, match="--num-train 800: its part of the split has 757 questions"):
        drawn(default, {"train": 800}, 0)
