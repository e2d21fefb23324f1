"""Stages: the plan, one command for all of them, lineage, and going on after a kill."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from recollect.cli import app
from recollect.runtime.console import Console
from recollect.types import BadInput
from recollect.workflows.stages.run_stages import run_stages
from recollect.workflows.stages.stage_plan import bindings, read_plan
from tests.training import killing

RECIPE = """
description: small
trainer: {{default_local_dir: {out}, total_training_steps: 2, save_freq: 1, threads: 1, device: cpu}}
actor_rollout_ref: {{model: {{path: {model}}}, actor: {{optim: {{lr: 1.0e-3}}}}, rollout: {{n: 3}}}}
data: {{train_batch_size: 2, max_response_length: 12, val_max_samples: 3, needle: {{chunks: 2, start_chunks: 2}}}}
recurrent: {{memory: {{config: {{chunk_size: 48, max_prompt_length: 32, max_memorization_length: 8,
  max_final_response_length: 8, split: sentence, style: plain}}}}}}
agent: {{reward_name: tests.workflows.test_stages:length}}
sft: {{data: sloppy, steps: {sft}, batch_size: 6}}
evaluation: {{lengths: [1], tasks: [3]}}
stages:
  - {{role: memory}}
  - {{role: qa, {second}}}
  - {{name: again, role: memory, steps: 1}}
end_to_end: {compared}
"""


def length(answer: str, trajectory: Any) -> float:
    """A reward that differs between attempts, so that every step has a gradient."""
    return sum(len(turn.completion.text) for turn in trajectory.turns) / 50


def recipe(
    folder: Path, model: Path, second: str = "name: qa", sft: int = 2, compared: str = "false", out: str = "out"
) -> str:
    file = folder / f"{out}.yaml"
    text = RECIPE.format(out=folder / out, model=model, second=second, sft=sft, compared=compared)
    file.write_text(text)
    return str(file)


def weights(checkpoint: str | Path) -> str:
    return hashlib.sha256((Path(checkpoint) / "model.safetensors").read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, small_model: Path) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("stages")
    plan, log = recipe(folder, small_model, compared="true"), folder / "out.log"
    assert killing.run(["stages", plan, "--quiet"], log) == 0, log.read_text()
    return folder / "out", json.loads((folder / "out" / "report.json").read_text())


def test_every_stage_trains_its_role_against_the_newest(finished: tuple[Path, dict[str, Any]]) -> None:
    root, report = finished
    assert [(s["name"], s["role"], s["steps"]) for s in report["stages"]] == [
        ("memory", "memory", 2),
        ("qa", "qa", 2),
        ("again", "memory", 1),
    ]
    first, second, third = report["stages"]
    base = str(root / "base" / "checkpoints" / "step-0")
    assert (first["start"], second["start"], third["start"]) == (base, base, first["checkpoint"])
    assert first["others"] == {"qa": base}
    assert second["others"] == {"memory": first["checkpoint"]}
    assert third["others"] == {"qa": second["checkpoint"]}
    for stage in report["stages"]:
        assert stage["frozen_hash_before"] == stage["frozen_hash_after"]
        assert stage["trained_tokens"] > 0
        assert stage["untrained_tokens"] > 0
        assert stage["held_out"] >= 0
    assert second["frozen_hash_after"] == first["weights_hash"]  # the very weights that the first stage made
    assert third["frozen_hash_after"] == second["weights_hash"]
    assert len({first["weights_hash"], second["weights_hash"], third["weights_hash"]}) == 3


def test_end_to_end_has_as_many_updates_and_trains_everything(finished: tuple[Path, dict[str, Any]]) -> None:
    _, report = finished
    both = report["end_to_end"]
    assert both["steps"] == sum(s["steps"] for s in report["stages"])
    assert (both["role"], both["untrained_tokens"], both["others"]) == ("memory+qa", 0, {})
    assert report["base"] is not None


def test_the_report_and_the_lineage_are_stored(finished: tuple[Path, dict[str, Any]]) -> None:
    root, report = finished
    lineage = json.loads((root / "lineage.json").read_text())
    assert [line["trained"] for line in lineage] == [["memory"], ["qa"], ["memory"], ["memory", "qa"]]
    assert lineage[1]["against"]["memory"]["hash"] == lineage[0]["became"]["hash"]
    assert lineage[2]["from"] == lineage[0]["became"]
    text = (root / "report.md").read_text()
    for words in ("| base |", "after memory", "after qa", "after again", "end to end"):
        assert words in text
    low, high = report["base_low"], report["base_high"]
    assert low <= report["base"] <= high
    assert f"| base | – | 0 | {report['base']:.3f} | {low:.3f} – {high:.3f} |" in text
    assert (root / "stages.png").read_bytes().startswith(b"\x89PNG")


def test_a_finished_command_only_reports(finished: tuple[Path, dict[str, Any]], small_model: Path) -> None:
    root, report = finished
    before = {p: p.stat().st_mtime_ns for p in root.rglob("*.safetensors")}
    again = run_stages(read_plan(str(root.parent / "out.yaml"), []), Console(quiet=True))
    assert json.loads((root / "report.json").read_text()) == again
    assert [s["weights_hash"] for s in again["stages"]] == [s["weights_hash"] for s in report["stages"]]
    assert {p: p.stat().st_mtime_ns for p in root.rglob("*.safetensors")} == before


@pytest.mark.parametrize("kind", ["update", pytest.param("token", marks=pytest.mark.slow)])
def test_killed_in_the_middle_of_the_second_stage_and_resumed(
    tmp_path: Path, small_model: Path, finished: tuple[Path, dict[str, Any]], kind: str
) -> None:
    """The same final weights as without the kill, whether it came in an update or while sampling."""
    whole, _ = finished
    found = killing.moments(whole.with_suffix(".log"))
    after = 2 * (1 + 5)  # a step is a backward pass and an update: one in the third stage, five of end to end
    at = found["update"] - after - 1 if kind == "update" else found["token"] // 4
    cut, log = recipe(tmp_path, small_model, out="cut"), tmp_path / "cut.log"
    assert killing.run(["stages", cut, "--quiet"], log, kind, at) == -9, log.read_text()
    if kind == "update":
        assert (tmp_path / "cut" / "2-qa" / "checkpoints" / "step-1").is_dir()
        assert not (tmp_path / "cut" / "3-again").exists()
    assert killing.run(["stages", cut, "--quiet"], log) == 0, log.read_text()
    for final in ("3-again/checkpoints/step-1", "2-qa/checkpoints/step-2", "1-memory/checkpoints/step-2"):
        assert weights(tmp_path / "cut" / final) == weights(whole / final), final
    lines = (tmp_path / "cut" / "2-qa" / "metrics.jsonl").read_text().splitlines()
    steps = [row["step"] for row in map(json.loads, lines) if "reward/mean" in row]
    assert steps == [1, 2]


def test_others_and_starts(tmp_path: Path, small_model: Path) -> None:
    second = f"start: base, others: {{memory: {small_model}}}, settings: {{trainer: {{seed: 9}}}}"
    plan = read_plan(recipe(tmp_path, small_model, second=second), [])
    stage = plan.stages[1]
    assert stage.name == "qa"
    assert bindings(stage, {"memory": "m", "qa": "q"}, "b") == {"qa": "trainable", "memory": f"frozen:{small_model}"}
    cfg = plan.config(stage, "tiny", {"qa": "trainable", "memory": "frozen:tiny"})
    assert (cfg.trainer.seed, cfg.actor_rollout_ref.model.path, cfg.sft.steps) == (9, "tiny", 0)
    assert cfg.trainer.default_local_dir == str(tmp_path / "out" / "2-qa")
    for text, bound in (
        ("newest", "frozen:m"),
        ("base", "frozen:b"),
        ("serve", "serve:m"),
        ("endpoint:http://h/v1", "endpoint:http://h/v1"),
    ):
        other = read_plan(recipe(tmp_path, small_model, second=f"others: {{memory: '{text}'}}"), []).stages[1]
        assert bindings(other, {"memory": "m", "qa": "q"}, "b")["memory"] == bound


def test_a_variant_comes_before_a_stages_own_settings_and_may_change_the_stages(
    tmp_path: Path, small_model: Path
) -> None:
    file = Path(recipe(tmp_path, small_model, compared="true"))
    variant = """
variants:
  size:
    few:
      trainer: {total_training_steps: 9, seed: 3}
      data: {train_batch_size: 2}
      stages: [{role: memory, steps: 5}, {role: qa}]
"""
    file.write_text(file.read_text() + variant)
    whole = read_plan(str(file), ["size=few", "trainer.seed=4"])
    assert [stage.roles for stage in whole.stages] == [("memory",), ("qa",)]
    bound = {"memory": "trainable", "qa": "trainable"}
    first, second = (whole.config(stage, "tiny", bound) for stage in whole.stages)
    assert (first.trainer.total_training_steps, second.trainer.total_training_steps) == (5, 9)
    assert (first.trainer.seed, second.trainer.seed, first.data.train_batch_size) == (4, 5, 2)
    assert whole.end_to_end is not None
    assert whole.config(whole.end_to_end, "tiny", bound).trainer.total_training_steps == 14
    with pytest.raises(BadInput, match="size=many: known are few"):
        read_plan(str(file), ["size=many"])


def test_a_model_that_an_earlier_stage_will_make_may_be_named(tmp_path: Path, small_model: Path) -> None:
    made = tmp_path / "out" / "1-memory"
    assert read_plan(recipe(tmp_path, small_model, second=f"start: {made}"), []).stages[1].start == str(made)
    with pytest.raises(BadInput, match="stage 2: start="):
        read_plan(recipe(tmp_path, small_model, second=f"start: {tmp_path / 'out' / '3-again'}"), [])


def test_a_served_role_is_known_by_its_weights(tmp_path: Path, small_model: Path) -> None:
    """lineage.json has the digest of what a server of our own serves, and of a base that nobody loaded frozen."""
    file = Path(recipe(tmp_path, small_model, sft=0))
    head = file.read_text().partition("\nstages:")[0] + "\n".replace(
        "total_training_steps: 2", "total_training_steps: 1"
    )
    file.write_text(f"{head}stages: [{{role: memory, others: {{qa: serve}}}}, {{role: qa, others: {{memory: base}}}}]")
    report = run_stages(read_plan(str(file), []), Console(quiet=True))
    first, second = report["lineage"]
    assert first["from"] == first["against"]["qa"] == second["from"]
    assert first["from"]["model"] == str(small_model)
    assert second["against"]["memory"] == first["from"]  # the digest that a frozen model has in its own run
    assert len({first["from"]["hash"], first["became"]["hash"], second["became"]["hash"], None}) == 4


def test_equal_stages_are_stages_of_their_own(tmp_path: Path, small_model: Path) -> None:
    """A role that is trained twice, word for word the same, has two runs and two seeds."""
    file = Path(recipe(tmp_path, small_model, compared="true"))
    file.write_text(file.read_text().replace("{name: again, role: memory, steps: 1}", "{role: memory}"))
    plan = read_plan(str(file), [])
    assert [plan.folder(stage).name for stage in plan.stages] == ["1-memory", "2-qa", "3-memory"]
    made = [plan.config(stage, "tiny", {"memory": "trainable"}).trainer for stage in plan.stages]
    assert [trainer.seed for trainer in made] == [0, 1, 2]
    assert plan.end_to_end is not None
    assert plan.folder(plan.end_to_end).name == "end_to_end"


def test_the_command_line_comes_after_the_stages(tmp_path: Path, small_model: Path) -> None:
    plan = read_plan(
        recipe(tmp_path, small_model, compared="true"), ["trainer.total_training_steps=5", "trainer.seed=4"]
    )
    steps = [plan.config(s, "tiny", {}).trainer.total_training_steps for s in plan.stages]
    assert steps == [5, 5, 5]
    assert plan.end_to_end is not None
    cfg = plan.config(plan.end_to_end, "tiny", {"memory": "trainable", "qa": "trainable"})
    assert (cfg.trainer.total_training_steps, cfg.trainer.seed) == (15, 4)


def test_the_plan_is_printed(tmp_path: Path, small_model: Path) -> None:
    from typer.testing import CliRunner

    for command in ("stages", "train"):
        done = CliRunner().invoke(app, [command, recipe(tmp_path, small_model, compared="true"), "--dry-run"])
        assert done.exit_code == 0, done.output
        for words in ("base", "again", "memory=frozen:memory", "qa=frozen:qa", "5 steps", "nothing was started"):
            assert words in done.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ("steps: 2, role_: qa", "stage 2: unknown key role_"),
        ("others: {answers: base}", "the agent recurrent has no role answers; it has memory, qa"),
        ("others: {qa: base}", "qa is trained, so it cannot be among the others"),
        ("name: end_to_end", "end_to_end is the name of the comparison"),
        ("steps: many", "stage 2: steps=many is not a whole number"),
        ("others: 5", "stage 2: others is not a mapping"),
        ("name: a/b", "stage 2: name=a/b is the name of a folder"),
        ("others: {memory: 'endpoint:nowhere'}", "roles.memory=endpoint:nowhere is no address"),
        ("settings: {trainer: {steps: 1}}", "unknown key trainer.steps"),
        ("start: /nope", "stage 2: start=/nope: no model folder at /nope .*known: last .*, base, or a folder"),
        ("others: {memory: foo}", "stage 2: others.memory=foo: no model folder at foo .*known: newest, base, serve"),
        ("others: {memory: 'serve:/nope'}", "stage 2: others.memory=/nope: no model folder"),
    ],
)
def test_plans_that_cannot_be(tmp_path: Path, small_model: Path, second: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        read_plan(recipe(tmp_path, small_model, second=second), [])


def test_a_recipe_without_stages() -> None:
    with pytest.raises(BadInput, match="needle has no stages"):
        read_plan("needle", [])


def test_the_recipe_two_stage_runs(tmp_path: Path, small_model: Path) -> None:
    settings = [
        *(f"actor_rollout_ref.model.path={small_model}", f"trainer.default_local_dir={tmp_path / 'out'}"),
        *("trainer.total_training_steps=1", "sft.steps=1", "sft.batch_size=5", "data.train_batch_size=2"),
        *("evaluation.tasks=[2]", "data.val_max_samples=2", "trainer.threads=1", "trainer.device=cpu"),
    ]
    report = run_stages(read_plan("two_stage", settings), Console(quiet=True))
    assert [stage["role"] for stage in report["stages"]] == ["memory", "qa", "memory"]
    assert report["end_to_end"]["steps"] == 3
