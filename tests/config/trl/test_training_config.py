"""VideoMultiAgents' training_config.yaml as the plan of a pipeline."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from recollect.config.translate.trl.training_config import PIPELINE
from recollect.config.translate.trl.trl_reference import page
from recollect.runtime.console import Console
from recollect.types import BadInput
from recollect.workflows.pipeline.pipeline import run_pipeline_stages, wanted
from recollect.workflows.pipeline.pipeline_plan import Plan, read_plan
from tests.config.trl.files import RL_DEFAULTS, TRAINING_CONFIG, TRL_DEFAULTS


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    captions = tmp_path / "data" / "video_samples" / "toy_captions.txt"
    captions.parent.mkdir(parents=True)
    captions.write_text("A person opens the fridge.\nA cat jumps onto a chair.\n")
    (tmp_path / "configs").mkdir()
    return tmp_path


def plan(**values: Any) -> Plan:
    path = Path("configs/training_config.yaml")
    path.write_text(yaml.safe_dump({**TRAINING_CONFIG, **values}))
    return read_plan(str(path))


OTHER: dict[str, Any] = {
    "model_name": "scratch",
    "sft_models_dir": "a",
    "rl_models_dir": "b",
    "raw_glob": "raw/*/*.traj.json",
    "unified_dir": "c",
    "sft_data_dir": "d",
    "rewards_file": "e.json",
    "tools": ["bash"],
    "min_reward": 0.9,
    "max_examples": 3,
    "domain_weights": None,
    "agents": {"math": {"questions": ["1 + 1"]}},
    "evaluation": {"metrics": ["accuracy"], "test_datasets": ["t.json"], "output_dir": "f"},
}


@pytest.mark.parametrize("name", [key.name for key in PIPELINE if key.name != "templates"])
def test_a_key_changes_what_its_row_says(name: str) -> None:
    becomes = next(key.becomes for key in PIPELINE if key.name == name)
    before, after = asdict(plan()), asdict(plan(**{name: OTHER[name]}))
    changed = {key for key in before if before[key] != after[key]}
    assert changed == set(becomes) | ({"rl"} if name == "domain_weights" else set())  # RL's reward has the weights


def test_the_table_has_every_key_and_the_page_shows_them() -> None:
    assert TRAINING_CONFIG.keys() | {"templates"} == {key.name for key in PIPELINE}
    docs = Path(__file__).parents[3] / "docs" / "from-videomultiagents.md"
    assert docs.read_text() == page()
    for name in (*TRAINING_CONFIG, *TRL_DEFAULTS, *RL_DEFAULTS):
        assert f"| `{name}` |" in page()


def test_settings_of_the_stages_come_from_the_files_beside_it() -> None:
    assert plan().sft["sft"]["optim"]["lr"] == 2e-5  # the default of its key
    Path("configs/trl_defaults.yaml").write_text(yaml.safe_dump({**TRL_DEFAULTS, "learning_rate": 3e-4}))
    Path("configs/rl_defaults.yaml").write_text(yaml.safe_dump({**RL_DEFAULTS, "ppo_epochs": 2, "out_dir": "other"}))
    made = plan()
    assert made.sft["sft"]["optim"]["lr"] == 3e-4
    cfg = made.config(made.rl)
    assert (cfg.actor_rollout_ref.actor.ppo_epochs, cfg.algorithm.adv_estimator) == (2, "gae")
    assert cfg.trainer.default_local_dir == ""  # the pipeline decides
    assert cfg.agent.reward_name == "trajectory(weights=configs/training_config.yaml)"
    assert made.rl_min_reward == 0.3


BAD: list[tuple[dict[str, Any], str]] = [
    ({"colour": 1}, "unknown key colour"),
    ({"agents": {"math": {"question": ["1"]}}}, r"agents\.math\.question is unknown"),
    ({"agents": {"math": {"questions": [1]}}}, "questions is a list of texts"),
    ({"agents": {"math": {"questions": []}}}, "questions is a list of texts"),
    ({"agents": {"math": {"questions": ["1"], "num_trajectories": 0}}}, "num_trajectories=0"),
    ({"agents": {"video": {"questions": ["1"], "video_context": "nowhere.txt"}}}, "no file or folder nowhere.txt"),
    ({"agents": {"chess": {"questions": ["1"]}}}, r"agents\.chess is no domain"),
    ({"evaluation": {"metrics": ["beauty"]}}, "metrics: beauty is unknown"),
    ({"evaluation": {"speed": 1}}, r"evaluation\.speed is unknown"),
    ({"raw_glob": "data/raw/*.json"}, "raw_glob=.* does not match"),
    ({"max_examples": 0}, "max_examples=0 has to be a positive whole number"),
    ({"domain_weights": {"mhqa": {"completion": 2}}}, "completion=2"),
    ({"templates": "nowhere.yaml"}, "nowhere.yaml"),
]


@pytest.mark.parametrize(("values", "message"), BAD)
def test_what_cannot_work_is_refused_before_anything_runs(values: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        plan(**values)


def test_the_guides_folders_and_one_model_for_each_tool(small_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = plan(model_name=str(small_model), tools=["reason", "bash", "load_context"], out="out")
    run_pipeline_stages(made, wanted("sft", [], False), Console())
    names = lambda folder: sorted(p.name for p in Path(folder).iterdir())
    assert names("data/raw") == names("data/unified") == ["math", "mhqa", "video"]
    assert names("data/raw/mhqa") == ["traj_001.traj.json", "traj_002.traj.json", "traj_003.traj.json"]
    asked = [json.loads(p.read_text())["question"] for p in sorted(Path("data/raw/mhqa").iterdir())]
    hobbit, capital = TRAINING_CONFIG["agents"]["mhqa"]["questions"]
    assert asked == [hobbit, capital, hobbit]  # three trajectories of two questions
    assert names("data/raw/math") == ["traj_001.traj.json"]
    assert "reason" in names("data/sft")
    assert Path("data/rewards/analysis.json").is_file()
    assert names("models/sft") == ["reason"]
    assert list(Path("models/sft/reason/logs").glob("events.out.tfevents.*"))
    report = json.loads(Path("out/report.json").read_text())
    assert set(report["sft"]) == {"reason"}
    shown = capsys.readouterr().out
    assert "no rows of the tool bash" in shown
    assert "answers from data/video_samples/toy_captions.txt" in shown
    run_pipeline_stages(made, wanted("sft", [], False), Console())
    assert capsys.readouterr().out.count("complete, passed over") == 5


def test_trajectories_of_others_are_not_written_over(small_model: Path) -> None:
    theirs = Path("data/raw/math/traj_001.traj.json")
    theirs.parent.mkdir(parents=True)
    theirs.write_text('{"task_id": "m", "domain": "math", "question": "1 + 1", "actions": [], "final_answer": "2"}')
    made = plan(model_name=str(small_model), out="out")
    with pytest.raises(BadInput, match=r"traj_001.traj.json is there already: --skip generate"):
        run_pipeline_stages(made, wanted("sft", [], False), Console(True))
    run_pipeline_stages(made, ["convert", "reward"], Console(True))
    assert json.loads(Path("data/rewards/analysis.json").read_text())["scored"] == 1
    assert "final_answer" in theirs.read_text()


def test_held_out_files_are_measured_with_the_metrics_that_are_named(small_model: Path) -> None:
    Path("math.json").write_text(json.dumps([{"question": "What is 1 + 1?", "answer": "2"}]))
    settings = {"agent": {"max_turns": 2}, "data": {"max_response_length": 4}}
    names = {"metrics": ["accuracy", "reward", "efficiency"], "test_datasets": ["math.json"], "output_dir": "results"}
    made = plan(model_name=str(small_model), evaluation=names, out="out", settings=settings)
    report = run_pipeline_stages(made, ["evaluate"], Console(True))
    assert report["domains"]["math"]["n"] == 1
    assert report["metrics"]["math"]["base"].keys() == {"reward", "efficiency"}
    assert json.loads(Path("results/evaluation.json").read_text())["math"]["base"]["accuracy"] == 0
    Path("math.json").rename("others.json")
    names["test_datasets"] = ["others.json"]
    with pytest.raises(BadInput, match="names no domain"):
        run_pipeline_stages(plan(model_name=str(small_model), evaluation=names, out="out"), ["evaluate"], Console(True))
