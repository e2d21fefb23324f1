"""The commands of VideoMultiAgents' guide, on its own files and on recollect's."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from recollect.config.compose import compose
from recollect.runtime.console import Console
from recollect.sources.task_stream import training_tasks
from recollect.workflows.rollout.generate import RolloutRequest, run
from recollect.workflows.rollout.tasks import RolloutTasks
from tests import commands
from tests.config.trl.files import RL_DEFAULTS

ROOT = Path(__file__).parents[3]
SHARED = Path(os.environ.get("RECOLLECT_TEST_DATA") or ROOT.parent / "shared" / "data")
RAW = SHARED / "videomultiagents" / "data" / "raw"


def answered(
    folder: Path, domain: str, question: str, capsys: pytest.CaptureFixture[str]
) -> tuple[dict[str, Any], str]:
    out = folder / f"{domain}.traj.json"
    assert run(RolloutRequest(RolloutTasks(domain, question), "expert", out), [], Console()) == 0
    return json.loads(out.read_text()), capsys.readouterr().out


def test_a_question_alone_is_answered_from_what_comes_with_the_package(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hobbit = "Who wrote The Hobbit and what other works did they create?"
    made, said = answered(tmp_path, "mhqa", hobbit, capsys)
    assert "Tolkien wrote The Hobbit" in made["final_answer"]
    assert "The Lord of the Rings" in made["final_answer"]
    assert "the scripted expert of mhqa answers from the few passages that come with recollect" in said
    made, said = answered(tmp_path, "tau", "What is the company policy on remote work?", capsys)
    assert "three days" in made["final_answer"]
    assert "answers from the policy and the few records" in said
    made, said = answered(tmp_path, "swe", "Write a function that reverses a string", capsys)
    assert made["success"] is None
    assert "answers from an empty folder" in said
    made, said = answered(tmp_path, "math", "Solve the equation 2x + 5 = 13", capsys)
    assert (made["final_answer"], "the scripted expert of math answers\n" in said) == ("4", True)
    unknown = tmp_path / "unknown"
    unknown.mkdir()
    made, _ = answered(unknown, "mhqa", "Who leads the orchestra of Lima?", capsys)
    assert "cannot" in made["final_answer"]  # it is not in the passages


@pytest.mark.skipif(not RAW.is_dir(), reason="the trajectories of VideoMultiAgents are not here")
def test_the_guides_reinforcement_command_on_its_own_raw_files(tmp_path: Path, small_model: Path) -> None:
    shutil.copytree(RAW, tmp_path / "data" / "raw")
    for path in (tmp_path / "data").rglob("*"):
        path.chmod(0o755)
    (tmp_path / "rl_defaults.yaml").write_text(yaml.safe_dump({**RL_DEFAULTS, "num_train_epochs": 1}))
    words = ["--config", "rl_defaults.yaml", "--model_name", str(small_model), "--min_reward", "0.3"]
    words += ["--trajectory_glob", "data/raw/*/*.traj.json", "--out_dir", "models/rl"]
    short = ["data.max_response_length=8", "agent.max_turns=2", "trainer.threads=1"]
    done = commands.run("train", *words, *short, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "models/rl/metrics.jsonl").read_text().splitlines()]
    assert [r["step"] for r in rows if "critic/value_loss" in r] == [1]  # PPO: there is a critic, and it learns
    assert list((tmp_path / "models/rl/logs").glob("events.out.tfevents.*"))
    stored = yaml.safe_load((tmp_path / "models/rl/config.yaml").read_text())
    assert stored["algorithm"]["adv_estimator"] == "gae"
    assert stored["agent"]["reward_name"] == "trajectory(weights=rl_defaults.yaml)"


@pytest.mark.parametrize("key", ["data.train_files", "data.offline_files"])
def test_stored_trajectories_name_agent_and_reward(key: str, tmp_path: Path) -> None:
    out = tmp_path / "math.jsonl"
    assert run(RolloutRequest(RolloutTasks("math", made_up=2), "expert", out), [], Console(True)) == 0
    cfg = compose(None, [f"{key}={out}"])
    assert (cfg.agent.agent_type, cfg.agent.reward_name) == ("domain", "trajectory")
    assert compose(None, [f"{key}={out}", "agent.reward_name=success"]).agent.reward_name == "success"
    assert compose(None, [f"{key}={out}", "agent.agent_type=math"]).agent.agent_type == "math"
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"question": "q", "context": "c", "answer": "a"}\n')
    assert compose(None, [f"data.train_files={tasks}"]).agent.agent_type == "recurrent"
    assert compose(None, ["data.train_files=nowhere.jsonl"]).agent.agent_type == "recurrent"


def test_tasks_without_material_get_the_packages_or_are_left_out(tmp_path: Path) -> None:
    steps = [{"tool": "reason", "input": {"prompt": "p"}, "output": "o"}]
    for domain in ("mhqa", "video", "swe"):
        row = {"task_id": domain, "question": "q", "actions": steps, "final_answer": "a", "reward": {"total": 0.8}}
        (tmp_path / domain).mkdir()
        (tmp_path / domain / "x.traj.json").write_text(json.dumps(row))
    said: list[str] = []
    cfg = compose(None, [f"data.train_files={tmp_path}/*/*.traj.json"])
    tasks = {task.source: task for task in training_tasks(cfg, said.append)}
    assert set(tasks) == {"mhqa", "swe"}  # a video has to bring its captions
    assert "Hobbit" in tasks["mhqa"].context
    assert any("captions" in line for line in said)
    assert any("they get, swe: an empty folder" in line for line in said)


def test_every_command_of_the_guide_has_its_counterpart_in_the_docs() -> None:
    page = (ROOT / "docs" / "pipeline.md").read_text()
    for script in (
        *(
            "train_example.py",
            "train_models.py",
            "MHQA_agent",
            "Video_multiagent",
            "Math_agent",
            "SWE_agent",
            "TAU_agent",
        ),
        *("convert_to_out_traj_format.py", "calculate_rewards.py", "build_sft_datasets.py", "trl_train_tool_sft.py"),
        *("trl_train_rl.py", "eval.py", "tensorboard --logdir", "create_rl_dataset", "RewardCalculator"),
    ):
        assert script in page.partition("## The guide of VideoMultiAgents")[2], script
