"""The pipeline in small: every stage, skipped when complete, done again when what it depends on changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from recollect.rewards.trajectory_total import calculator
from recollect.runtime.console import Console
from recollect.types import BadInput
from recollect.workflows.pipeline.pipeline import run_pipeline_stages, wanted
from recollect.workflows.pipeline.pipeline_plan import Plan, read_plan
from recollect.workflows.pipeline.pipeline_stages import STAGES


def small(tmp_path: Path, model: Path, **more: Any) -> Plan:
    tree: dict[str, Any] = {
        "out": str(tmp_path / "out"),
        "model": str(model),
        "agents": {"mhqa": {"questions": 6, "test": 2}, "video": {"questions": 6, "test": 2}},
        "settings": {
            "agent": {"system_prompt": "act", "max_turns": 3},
            "data": {"max_response_length": 6, "max_prompt_length": 256},
            "trainer": {"threads": 1},
        },
        "sft": {"sft": {"steps": 2, "batch_size": 4}},
        "rl": {
            "trainer": {"total_training_steps": 1},
            "data": {"train_batch_size": 4},
            "actor_rollout_ref": {"rollout": {"n": 2}},
        },
        **more,
    }
    path = tmp_path / "plan.yaml"
    path.write_text(yaml.safe_dump(tree))
    return read_plan(str(path))


def test_all_stages_once_and_those_that_changed_again(tmp_path: Path, small_model: Path) -> None:
    plan, every = small(tmp_path, small_model), list(STAGES)
    report = run_pipeline_stages(plan, every, Console(True))
    assert list(report["seconds"]) == every
    assert {d: (r["n"], set(r)) for d, r in report["domains"].items()} == dict.fromkeys(
        ("mhqa", "video"), (2, {"base", "sft", "rl", "n"})
    )
    assert all(r[p] is not None for r in report["domains"].values() for p in ("base", "sft", "rl"))
    out = tmp_path / "out"
    assert json.loads((out / "report.json").read_text()) == report
    assert "| mhqa |" in (out / "report.md").read_text()
    assert sorted(p.name for p in (out / "plots").iterdir()) == ["rl_reward.png", "sft_loss.png", "success.png"]
    marks = {p.name: p.stat().st_mtime_ns for p in (out / "stages").iterdir()}
    assert run_pipeline_stages(plan, every, Console(True)) == report
    assert marks == {p.name: p.stat().st_mtime_ns for p in (out / "stages").iterdir()}
    plan.rl["trainer"]["total_training_steps"] = 2
    run_pipeline_stages(plan, every, Console(True))
    again = {p.name for p in (out / "stages").iterdir() if p.stat().st_mtime_ns != marks[p.name]}
    assert again == {"rl.json", "evaluate.json"}
    assert (out / "rl" / "checkpoints" / "step-2").is_dir()


def test_a_stage_is_done_again_when_its_output_is_gone_or_a_file_it_reads_has_changed(
    tmp_path: Path, small_model: Path
) -> None:
    weights = tmp_path / "weights.yaml"
    weights.write_text("weights: {mhqa: {completion: 0.1, efficiency: 0.1, quality: 0.1, reasoning: 0.7}}\n")
    roomy = {"agent": {"system_prompt": "act", "max_turns": 5}, "data": {"max_response_length": 24}}
    plan, stages = small(tmp_path, small_model, weights=str(weights), settings=roomy), ["generate", "convert", "reward"]
    low = run_pipeline_stages(plan, stages, Console(True))["rewards"]["mhqa"]
    out = tmp_path / "out"
    kept = [json.loads(line)["reward"] for line in (out / "unified" / "mhqa.jsonl").read_text().splitlines()]
    assert sum(kept) / len(kept) == pytest.approx(low, abs=1e-5)  # the plan's weights decide what is kept, too
    (out / "unified" / "mhqa.jsonl").unlink()
    run_pipeline_stages(plan, stages, Console(True))
    assert (out / "unified" / "mhqa.jsonl").is_file()
    weights.write_text("weights: {mhqa: {completion: 0.7, efficiency: 0.1, quality: 0.1, reasoning: 0.1}}\n")
    calculator.cache_clear()  # as in another process
    assert run_pipeline_stages(plan, stages, Console(True))["rewards"]["mhqa"] > low + 0.1


def test_the_file_that_is_named_is_there(tmp_path: Path, small_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = small(tmp_path, small_model, agents={"math": {"questions": 2, "test": 2}})
    run_pipeline_stages(plan, ["generate"], Console())
    shown = capsys.readouterr().out
    named = next(line for line in shown.splitlines() if "2 trajectories in " in line)
    assert Path(named.partition("2 trajectories in ")[2].partition(",")[0]).is_file()


def test_modes_and_skipped_stages() -> None:
    assert wanted("both", [], True) == list(STAGES)
    assert wanted("sft", ["generate"], False) == ["convert", "reward", "sft-data", "sft"]
    assert wanted("rl", [], True) == ["generate", "convert", "reward", "rl", "evaluate"]
    with pytest.raises(BadInput, match="--mode dpo"):
        wanted("dpo", [], False)


def test_a_stage_whose_input_is_missing_says_so(tmp_path: Path, small_model: Path) -> None:
    with pytest.raises(BadInput, match="the stage generate has not been run"):
        run_pipeline_stages(small(tmp_path, small_model), ["convert"], Console(True))


BAD: list[tuple[dict[str, Any], str]] = [
    ({"colour": 1}, "colour is unknown"),
    ({"agents": {}}, "agents names the domains"),
    ({"min_reward": "high"}, "min_reward=high has to be a number"),
    ({"val_ratio": 1}, "val_ratio=1 must be"),
    ({"samples": 0}, "samples=0 has to be"),
    ({"weights": "nowhere.yaml"}, "no file of weights"),
    ({"templates": "nowhere.yaml"}, "no file of templates"),
    ({"agents": {"chess": {}}}, r"agents\.chess is no domain"),
    ({"agents": {"mhqa": {"questions": 0}}}, "neither a positive number"),
    ({"agents": {"mhqa": {"question": 3}}}, "has questions and test"),
    ({"settings": {"agent": {"max_turn": 3}}}, r"agent\.max_turn"),
    ({"rl": [1]}, "rl is a mapping"),
    ({"rl": {"trainer": {"seed": "x"}}}, r"plan\.yaml: rl: trainer\.seed=x"),
    ({"settings": {"trainer": {"seed": "x"}}}, r"plan\.yaml: settings: trainer\.seed=x"),
]


@pytest.mark.parametrize(("more", "message"), BAD)
def test_bad_plans_are_refused_before_anything_runs(
    tmp_path: Path, small_model: Path, more: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        small(tmp_path, small_model, **more)


def test_the_embedded_example_is_read() -> None:
    example = read_plan(None)
    assert set(example.agents) == {"mhqa", "video", "math"}
    assert example.config(example.rl).algorithm.adv_estimator == "gae"  # it says that it is PPO
    with pytest.raises(BadInput, match="no pipeline at"):
        read_plan("nowhere.yaml")


def test_skipping_may_be_written_in_one_word() -> None:
    from recollect.cli import _spelt_out

    words = ["pipeline", "x.yaml", "--skip-generate", "--mode", "sft", "--skip-sft-data"]
    assert _spelt_out(words) == ["pipeline", "x.yaml", "--skip", "generate", "--mode", "sft", "--skip", "sft-data"]
    assert _spelt_out(["train", "--skip-x"]) == ["train", "--skip-x"]
