"""Rows of the two-stage system and of MemAgent load as they are: several questions, sections, the agent they name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recollect.config.compose import compose
from recollect.data.questions import questions_of
from recollect.data.task_rows import load_tasks
from recollect.runs.directory import RunDirectory
from recollect.runtime.console import Console
from recollect.sources.task_stream import TaskStream
from recollect.training.train_run import TrainRun
from recollect.types import BadInput

CHUNKS = ["mira holds 2. kolu holds 7.", "savo holds 4. mira holds 5."]
ASKED = ["What does mira hold?", "What does savo hold?"]


def two_stage_row(**change: Any) -> dict[str, Any]:
    """A row as that system's own script writes it, by way of numpy arrays."""
    chunks = np.array(CHUNKS, dtype=object)
    tools = {"memory_bm25_retrieve": {"create_kwargs": {"chunks": chunks}}}
    tools["memory_add"] = {"create_kwargs": {"filename": "./tmp/memory_store.jsonl"}}  # type: ignore[dict-item]
    row = {
        "data_source": "memalpha_squad",
        "prompt": np.array([{"content": ASKED, "role": "user"}], dtype=object),
        "context": "\n\n".join(CHUNKS),
        "reward_model": {"ground_truth": ["5", "4"]},
        "extra_info": {"index": 0, "num_chunks": 2, "question": ASKED, "tools_kwargs": tools, "chunks": chunks},
        "agent_name": "tool_mem_agent",
    }
    return {**row, **change}


def memagent_row(**change: Any) -> dict[str, Any]:
    row = {
        "data_source": "hotpotqa",
        "prompt": [{"role": "user", "content": "What does mira hold?"}],
        "context": "Document 1:\nmira holds 2.\n\nDocument 2:\nkolu holds 7.",
        "ability": "memory",
        "reward_model": {"style": "rule", "ground_truth": ["2", "two"]},
        "extra_info": {"index": 0, "question": "What does mira hold?", "num_docs": 2},
    }
    return {**row, **change}


def plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | list):
        return [plain(v) for v in value]
    return {k: plain(v) for k, v in value.items()} if isinstance(value, dict) else value


def parquet(path: Path, rows: list[dict[str, Any]]) -> str:
    pq.write_table(pa.Table.from_pylist([plain(row) for row in rows]), path)
    return str(path)


def settings(file: str, *more: str) -> list[str]:
    return [f"data.train_files={file}", "data.train_batch_size=1", *more]


def test_a_list_of_questions_becomes_several_each_with_its_answer(tmp_path: Path) -> None:
    file = parquet(tmp_path / "train.parquet", [two_stage_row()])
    cfg = compose(None, settings(file))
    assert (cfg.agent.agent_type, cfg.agent.reward_name) == ("tool_memory", "memory_qa")
    (task,) = load_tasks(cfg, [file])
    assert [(q.text, q.answers) for q in questions_of(task)] == [(ASKED[0], ("5",)), (ASKED[1], ("4",))]
    assert task.context == "\n\n".join(CHUNKS)
    assert task.fields["extra_info"]["num_chunks"] == 2
    assert task.source == "memalpha_squad"


def test_the_same_rows_as_json_lines(tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    file.write_text(json.dumps(plain(two_stage_row(raw_chunks=CHUNKS))) + "\n")
    (task,) = load_tasks(compose(None, settings(str(file))), [str(file)])
    assert len(questions_of(task)) == 2
    assert task.context == CHUNKS


@pytest.mark.parametrize(
    "prompt",
    [
        ASKED,
        {"role": "user", "content": ASKED},
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": ASKED}],
    ],
)
def test_other_shapes_of_the_list(prompt: Any, tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    file.write_text(json.dumps({**plain(two_stage_row()), "prompt": prompt}))
    (task,) = load_tasks(compose(None, settings(str(file), "data.prompt_key=prompt")), [str(file)])
    assert [q.text for q in questions_of(task)] == ASKED


@pytest.mark.parametrize("agent", ["tool_memory", "recurrent"])
def test_raw_chunks_are_the_sections_as_they_are_given(agent: str, tmp_path: Path) -> None:
    one = two_stage_row(
        raw_chunks=CHUNKS,
        context="something else",
        prompt=[{"content": ASKED[:1], "role": "user"}],
        reward_model={"ground_truth": ["5"]},
    )
    file = parquet(tmp_path / "train.parquet", [one])
    cfg = compose(None, settings(file, f"agent.agent_type={agent}"))
    (task,) = load_tasks(cfg, [file])
    assert task.context == CHUNKS
    assert "raw_chunks" not in task.fields
    assert (task.question, task.answers) == (ASKED[0], ("5",))


def test_synth_rows_are_read_in_the_chunks_of_their_tools(tmp_path: Path) -> None:
    file = parquet(tmp_path / "train.parquet", [two_stage_row(data_source="synth")])
    (task,) = load_tasks(compose(None, settings(file)), [file])
    assert task.context == CHUNKS


def test_texts_that_are_stored_as_bytes(tmp_path: Path) -> None:
    table = pa.table({"prompt": [b"What does mira hold?"], "context": [CHUNKS[0].encode()], "answer": [b"2"]})
    pq.write_table(table, tmp_path / "train.parquet")
    file = str(tmp_path / "train.parquet")
    (task,) = load_tasks(compose(None, settings(file)), [file])
    assert (task.question, task.context, task.answers) == ("What does mira hold?", CHUNKS[0], ("2",))


def test_memagent_rows_and_its_evaluation_files(tmp_path: Path) -> None:
    file = parquet(tmp_path / "train.parquet", [memagent_row()])
    (task,) = load_tasks(compose(None, settings(file)), [file])
    assert (task.question, task.answers, task.source) == ("What does mira hold?", ("2", "two"), "hotpotqa")
    evaluation = tmp_path / "eval_200.json"
    evaluation.write_text(
        json.dumps([{"context": "mira holds 2.", "input": "What?", "answers": ["2"], "index": 0, "num_docs": 2}])
    )
    (task,) = load_tasks(compose(None, settings(str(evaluation))), [str(evaluation)])
    assert (task.question, task.answers) == ("What?", ("2",))


def test_answers_that_are_objects_and_lists(tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    truth = [{"text": "5"}, ["4", "four"]]
    file.write_text(json.dumps({**plain(two_stage_row()), "reward_model": {"ground_truth": truth}}))
    (task,) = load_tasks(compose(None, settings(str(file))), [str(file)])
    assert [q.answers for q in questions_of(task)] == [("5",), ("4", "four")]


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "fewer answers": ({"reward_model": {"ground_truth": ["5"]}}, "2 questions, and answers to 1"),
    "no answer": ({"reward_model": {"ground_truth": ["5", None]}}, "question 2: no accepted answer"),
    "no answers": ({"reward_model": None}, "question 1: no accepted answer"),
    "empty question": ({"prompt": [{"role": "user", "content": ["What?", None]}]}, "question 2: expected an object"),
    "null section": ({"raw_chunks": ["a", None]}, "a chunk is a text"),
    "no section": ({"raw_chunks": []}, "an empty document"),
    "text for sections": ({"raw_chunks": "a"}, "raw_chunks has to be a list of sections"),
}


@pytest.mark.parametrize("case", BAD)
def test_rows_that_cannot_work_are_refused_in_one_line(case: str, tmp_path: Path) -> None:
    change, words = BAD[case]
    file = tmp_path / "train.jsonl"
    file.write_text(json.dumps(plain(two_stage_row(**change))))
    cfg = compose(None, settings(str(file)))
    with pytest.raises(BadInput, match=rf"train.jsonl, line 1.*{words}"):
        load_tasks(cfg, [str(file)])


def test_what_names_the_agent_goes_before_the_rows(tmp_path: Path) -> None:
    file = parquet(tmp_path / "train.parquet", [two_stage_row(agent_name="single_turn_agent")])
    assert compose(None, settings(file)).agent.agent_type == "chat"
    override = "actor_rollout_ref.rollout.agent_name_override=tool_mem_agent"
    assert compose(None, settings(file, override)).agent.agent_type == "tool_memory"
    assert compose(None, settings(file, override)).agent.reward_name == "memory_qa"
    assert compose(None, settings(file, "agent.agent_type=rag")).agent.agent_type == "rag"
    assert compose(None, settings(file, "recurrent.enable=memory")).agent.agent_type == "recurrent"
    whole = "actor_rollout_ref.actor.ppo_mini_batch_size=1"
    assert compose("hotpotqa_memory", settings(file, whole)).agent.agent_type == "recurrent"
    named = settings(file, "actor_rollout_ref.rollout.agent_name_override=tool_mem_agent", "agent.reward_name=em")
    assert compose(None, named).agent.reward_name == "em"


def test_it_is_said_which_agent_the_rows_named_and_what_is_cut(tmp_path: Path) -> None:
    file = parquet(tmp_path / "train.parquet", [two_stage_row(raw_chunks=[*CHUNKS, "mira holds 2. " * 30])])
    cfg = compose(None, settings(file, "memory.chunk_size=64", "actor_rollout_ref.model.path=tiny"))
    said: list[str] = []
    TaskStream(cfg, said.append)
    assert said == [
        "agent_name=tool_mem_agent of the data is the agent tool_memory",
        "1 of 3 given sections are longer than memory.chunk_size=64; each is read in parts",
    ]
    file = parquet(tmp_path / "two.parquet", [two_stage_row(), two_stage_row(agent_name="single_turn_agent")])
    with pytest.raises(BadInput, match=r"several agents.*agent_name_override"):
        TaskStream(compose(None, settings(file)))


def test_a_reward_of_one_answer_is_refused_for_several_questions(tmp_path: Path) -> None:
    file = parquet(tmp_path / "train.parquet", [two_stage_row()])
    cfg = compose(None, settings(file, "agent.reward_name=boxed_em"))
    with pytest.raises(
        BadInput, match=r"scores one answer; set agent.reward_name=memory_qa memory.scores=\[boxed_em\]"
    ):
        load_tasks(cfg, [file])


def test_rows_of_both_systems_train_as_they_are(tmp_path: Path, small_model: Path) -> None:
    rows = [two_stage_row(raw_chunks=None), two_stage_row(raw_chunks=[*CHUNKS, "savo holds 9. " * 20])]
    small = ["trainer.total_training_steps=1", "actor_rollout_ref.rollout.n=2", "trainer.device=cpu"]
    small += [f"actor_rollout_ref.model.path={small_model}", "data.max_response_length=12"]
    memory = ["memory.style=plain", "memory.chunk_size=64", "agent.tool_parser=compact", "agent.max_turns=2"]
    file = parquet(tmp_path / "train.parquet", rows)
    folder = tmp_path / "two"
    cfg = compose(
        None,
        [
            *(f"data.train_files={file}", "data.train_batch_size=2", f"trainer.default_local_dir={folder}"),
            *(*small, *memory, "memory.budget=64", "memory.core_length=16", "memory.titles_length=16"),
        ],
    )
    assert TrainRun(cfg, Console(True)).fit()["steps"] == 1
    stored = list(RunDirectory(folder).trajectories())
    assert [row["failure"] for row in stored] == [None] * 4
    assert {t["is_final"] for row in stored for t in row["turns"]} == {0, 1, 2}
    assert max(len(row["notes"]) for row in stored) > 3  # the long section was read in parts

    file = parquet(tmp_path / "memagent.parquet", [memagent_row()])
    key = "recurrent.memory.config"
    limits = [f"{key}.max_memorization_length=8", f"{key}.max_final_response_length=8"]
    cfg = compose(
        None,
        settings(
            *(file, f"trainer.default_local_dir={tmp_path / 'one'}", *small, *limits),
            *(f"{key}.style=plain", f"{key}.chunk_size=32"),
        ),
    )
    assert TrainRun(cfg, Console(True)).fit()["steps"] == 1
