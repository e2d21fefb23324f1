"""Stored trajectories as tasks to reinforce."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recollect.config.compose import compose
from recollect.runs.directory import RunDirectory
from recollect.sources.stored_tasks import create_rl_dataset
from recollect.sources.task_stream import TaskStream
from recollect.trajectories.stored_rows import holds_trajectories
from recollect.types import IMAGE_MARK, BadInput, Completion, Group, Score, Task, Trajectory, Turn
from tests.seeing import pictures, shown

A, B, _ = pictures()


def unified(task: str, reward: float | None, **more: Any) -> dict[str, Any]:
    base = {"task_id": task, "domain": "mhqa", "question": f"ask {task}", "actions": [], "final_answer": f"a{task}"}
    return {**base, "success": reward == 1.0, "reward": reward, "metadata": {"context": "d"}, **more}


def attempt(task: str, sample: int, reward: float, logprobs: bool = True) -> Trajectory:
    ids = (20 + sample, 21, 22)
    done = Completion(ids, (-1.0, -2.0, -0.5) if logprobs else (), "stop", 0, "x")
    return Trajectory(task, sample, [Turn("agent", (5, 6, 7), done)], "x", "answered", Score(reward))


def stored_run(path: Path, rewards: dict[str, list[float]], logprobs: bool = True) -> Path:
    (path / "trajectories").mkdir(parents=True)
    groups = [
        Group(Task(t, f"ask {t}", None, (f"a{t}",), "mhqa"), [attempt(t, i, r, logprobs) for i, r in enumerate(rs)])
        for t, rs in rewards.items()
    ]
    RunDirectory(path).save_trajectories("step-000001", groups)
    return path


def test_tasks_whose_best_attempt_is_good_enough(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(json.dumps(unified("1", 1.0)))
    rows = [unified("1", 0.2), unified("2", 0.4), unified("3", None), unified("4", 0.7, success=False)]
    (tmp_path / "many.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = create_rl_dataset([tmp_path / "one.json", tmp_path / "many.jsonl"], 0.5)
    assert [(f["id"], f["reward"], f["answer"], f["context"]) for f in found] == [
        ("1", 1.0, ["a1"], "d"),
        ("4", 0.7, [], "d"),
    ]
    assert {f["id"] for f in create_rl_dataset(tmp_path)} == {"1", "2", "3", "4"}
    run = stored_run(tmp_path / "run", {"7": [0.0, 1.0], "8": [0.0, 0.0]})
    assert [(f["id"], f["answer"]) for f in create_rl_dataset(run, 0.5)] == [("7", ["a7"])]


def test_a_reward_that_nobody_recorded_is_calculated(tmp_path: Path) -> None:
    acted = [{"step": 1, "tool": "search", "input": "x", "output": "a1"}]
    rows = [unified("1", None, success=True, actions=acted), unified("2", None, success=False, actions=acted)]
    (tmp_path / "converted.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / ".converted.jsonl.part").write_text("half of it")
    (tmp_path / ".other.jsonl").write_text("half of it")
    (found,) = create_rl_dataset(tmp_path, 0.5)
    assert (found["id"], found["reward"] > 0.5) == ("1", True)


def test_a_run_of_reinforcement_starts_from_them(tmp_path: Path) -> None:
    run = stored_run(tmp_path / "run", {"7": [0.0, 1.0], "8": [0.0, 0.0], "9": [0.6]})
    assert holds_trajectories([str(run)])
    given = [f"data.train_files={run}", "agent.agent_type=chat", "data.train_batch_size=1"]
    assert [t.id for t in TaskStream(compose(None, [*given, "data.min_reward=0.5"])).rows] == ["7", "9"]
    assert len(TaskStream(compose(None, given)).rows) == 3
    with pytest.raises(BadInput, match=r"reached data\.min_reward=2"):
        TaskStream(compose(None, [*given, "data.min_reward=2"]))


def test_what_is_no_trajectory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"question": "a", "answer": "b"}\n')
    assert not holds_trajectories([str(tmp_path / "x.jsonl")])
    with pytest.raises(BadInput, match=r"x.jsonl, line 1: not a trajectory: it has question, answer"):
        create_rl_dataset([tmp_path / "x.jsonl"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="a folder without trajectories"):
        create_rl_dataset(tmp_path / "empty")
    (tmp_path / "cut.json").write_text('{"a": ')
    with pytest.raises(BadInput, match="broken JSON"):
        create_rl_dataset(tmp_path / "cut.json")


def run_with(path: Path, settings: list[str]) -> list[Task]:
    """A run directory with one stored attempt at each task of its first step, as `recollect train` writes it."""
    cfg = compose(None, [*settings, f"trainer.default_local_dir={path}", "data.train_batch_size=2"])
    tasks = TaskStream(cfg).take(1)
    RunDirectory.start(cfg).save_trajectories("step-000001", [Group(t, [attempt(t.id, 0, 1.0)]) for t in tasks])
    return tasks


@pytest.mark.parametrize("family", ["needle", "tau", "files"])
def test_the_tasks_of_a_run_have_their_documents_again(tmp_path: Path, family: str) -> None:
    rows = [
        {"id": f"r{i}", "question": f"q{i}", "context": f"document {i}", "answer": "a", "hint": i} for i in range(5)
    ]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    agent = ["agent.agent_type=tau", "agent.reward_name=success"] if family == "tau" else ["recurrent.enable=memory"]
    theirs = [f"data.train_files={tmp_path / 'rows.json'}"] if family == "files" else [f"data.made_up={family}"]
    tasks = {t.id: t for t in run_with(tmp_path / "run", [*agent, *theirs])}
    for place in (tmp_path / "run", tmp_path / "run" / "trajectories" / "step-000001.jsonl.zst"):
        found = TaskStream(compose(None, [*agent, "data.train_batch_size=2", f"data.train_files={place}"])).rows
        assert {t.id for t in found} == tasks.keys()
        for task in found:
            own = tasks[task.id]
            assert (task.context, task.question, task.answers) == (own.context, own.question, own.answers)
            assert all(task.fields[name] == value for name, value in own.fields.items() if name != "answer")
            assert own.context or own.fields["database"]


def test_a_run_whose_data_is_gone(tmp_path: Path) -> None:
    rows = [{"id": f"r{i}", "question": f"q{i}", "context": "d", "answer": "a"} for i in range(5)]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    run_with(tmp_path / "run", [f"data.train_files={tmp_path / 'rows.json'}", "agent.agent_type=chat"])
    (tmp_path / "rows.json").unlink()
    said: list[str] = []
    given = [f"data.train_files={tmp_path / 'run'}", "data.train_batch_size=2"]
    assert len(TaskStream(compose(None, [*given, "agent.agent_type=chat"]), said.append).rows) == 2
    assert any("are known by question and answer alone: no data file at" in line for line in said)
    with pytest.raises(BadInput, match="no document under"):
        TaskStream(compose(None, [*given, "recurrent.enable=memory"]))


STEPS = [
    {"role": "assistant", "content": "PLAN: look", "phase": "PLAN"},
    {"role": "tool", "content": "<returncode>0</returncode><output>&quot;ann&quot;</output>"},
]
RAW = [
    {"run_id": "r", "domain": "mhqa", "task_id": "Who wrote it?", "success": True, "steps": STEPS},
    {**unified("2", None, actions=[{"tool": "reason", "input": "x"}]), "reward": {"total": 0.8, "completion": 1.0}},
    unified("3", None, question=None, task_id="Why is it so?", actions=[{"action": "bash", "action_input": "ls"}]),
]


def test_attempts_of_other_systems_are_read_as_convert_reads_them(tmp_path: Path) -> None:
    for i, row in enumerate(RAW):
        (tmp_path / f"{i}.traj.json").write_text(json.dumps(row))
    found = create_rl_dataset([tmp_path / "*.traj.json"])
    assert [f["question"] for f in found] == ["Who wrote it?", "ask 2", "Why is it so?"]
    assert found[1]["reward"] == 0.8
    assert {f["data_source"] for f in found} == {"mhqa"}
    nothing = {"tool": "unknown", "input": "", "output": ""}
    (tmp_path / "3.traj.json").write_text(json.dumps(unified("4", None, question=None, actions=[nothing])))
    assert create_rl_dataset([tmp_path / "*.traj.json"]) == found
    (tmp_path / "all.json").write_text(json.dumps({"trajectories": RAW, "run": 1}))
    assert [f["question"] for f in create_rl_dataset(tmp_path / "all.json")] == [f["question"] for f in found]
    for name in ("0.traj.json", "1.traj.json", "2.traj.json"):
        assert holds_trajectories([str(tmp_path / name)])
    (tmp_path / "data.jsonl").write_text(json.dumps({"question": "q", "answer": "1", "steps": ["a", "b"]}))
    assert not holds_trajectories([str(tmp_path / "data.jsonl")])


def test_the_images_of_a_question_come_back(tmp_path: Path) -> None:
    """They stand in the first prompt, before those that the attempt was shown later."""
    prompt = [5, *shown(A), 6, *shown(B), 7]
    done = Completion((20, 22), (-1.0, -2.0), "stop", 0, "x")
    made = Trajectory("t", 0, [Turn("agent", prompt, done, images=(A, B))], "x", "answered", Score(1.0))
    task = Task("t", f"See {IMAGE_MARK}?", None, ("x",), "mine", images=(A,))
    run = tmp_path / "run"
    (run / "trajectories").mkdir(parents=True)
    RunDirectory(run).save_trajectories("step-000001", [Group(task, [made])])
    sees = ["actor_rollout_ref.model.path=scratch_vision", "agent.agent_type=chat", "data.min_reward=0.5"]
    cfg = compose(None, [*sees, f"data.train_files={run}", "data.train_batch_size=1"])
    (again,) = TaskStream(cfg).rows
    assert (again.question, again.images, again.answers) == (task.question, (A,), ("x",))
    for image in (run / "trajectories" / "images").glob("*"):
        image.unlink()
    with pytest.raises(BadInput, match="cannot be read"):
        create_rl_dataset(run)
    lost = unified("1", 1.0, question=f"{IMAGE_MARK}?")
    (tmp_path / "lost.json").write_text(json.dumps(lost))
    with pytest.raises(BadInput, match="the question shows 1 images, and the trajectory does not hold them"):
        create_rl_dataset(tmp_path / "lost.json")


def test_raw_files_are_imitated(tmp_path: Path) -> None:
    from recollect.chat import Renderer
    from recollect.models.load import load_tokenizer
    from recollect.training.sft.sequences import SequenceLimits, holds_conversations, read_samples

    renderer = Renderer(load_tokenizer("tiny"))
    for i, row in enumerate(RAW):
        path = tmp_path / f"{i}.traj.json"
        path.write_text(json.dumps(row))
        assert holds_conversations([str(path)])
        made = read_samples([str(path)], renderer, SequenceLimits())
        assert len(made.samples) == 1
        assert "&quot;" not in renderer.tokenizer.decode(made.samples[0].ids)
