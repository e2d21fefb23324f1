"""Runs of models that see: AgentFly's keys for `gui`, a resumed run, SFT on what was stored, questions with images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from recollect.config import Config
from recollect.config.compose import compose
from recollect.models.load import load_model, load_renderer
from recollect.models.weights_digest import weights_digest
from recollect.runtime.console import Console
from recollect.tasks.screens import make_task
from recollect.training.train_run import TrainRun
from recollect.workflows.dry_run.dry_run import dry_run
from tests.seeing import pictures, save_seeing


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_seeing(tmp_path_factory.mktemp("seeing") / "model")


@pytest.fixture(scope="module")
def screens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Screens as AgentFly's data has tasks: a question, and fields for the environment."""
    cfg = compose(None, ["agent.agent_type=gui"])
    tasks = [make_task(cfg, 0, i, "train") for i in range(4)]
    file = tmp_path_factory.mktemp("data") / "screens.json"
    file.write_text(json.dumps([{"question": t.question, "answer": "", **t.fields} for t in tasks]))
    return file


def guide(model: Path, screens: Path, out: Path, *more: str) -> Config:
    """AgentFly's training command with its keys for an agent that sees."""
    settings = [
        *(
            "algorithm.adv_estimator=grpo",
            "data.train_batch_size=2",
            "agent.agent_type=gui",
            "agent.template=qwen2.5-vl",
        ),
        *(f"data.train_files={screens}", f"data.val_files={screens}", f"agent.model_name_or_path={model}"),
        *("agent.max_turns=3", "agent.reward_name=gui_format", "agent.num_chains=2", "agent.use_agent=True"),
        *("agent.max_tokens_per_turn=8", "actor_rollout_ref.actor.optim.lr=5e-4", "trainer.logger=['console']"),
        *(f"actor_rollout_ref.model.path={model}", "actor_rollout_ref.actor.ppo_mini_batch_size=2"),
        *("actor_rollout_ref.actor.use_kl_loss=True", "actor_rollout_ref.actor.kl_loss_coef=0.001"),
        *("actor_rollout_ref.rollout.name=vllm", "actor_rollout_ref.rollout.response_length=8"),
        *("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2", "actor_rollout_ref.actor.entropy_coeff=0.1"),
        *("trainer.total_training_steps=2", "trainer.save_freq=1", "trainer.test_freq=-1"),
        *("trainer.val_before_train=False", f"trainer.default_local_dir={out}", "trainer.threads=1"),
    ]
    return compose(None, [*settings, *more])


def test_the_keys_of_agentflys_guide(model: Path, screens: Path, tmp_path: Path, capsys: Any) -> None:
    dry_run(guide(model, screens, tmp_path / "run"), Console(quiet=True))
    whole = [f"actor_rollout_ref.{part}.dtype=float32" for part in ("actor", "rollout")]
    cfg = guide(model, screens, tmp_path / "run", *whole)
    report = TrainRun(cfg, Console(quiet=True)).fit()
    assert report is not None
    fidelity = json.loads((tmp_path / "run" / "fidelity.json").read_text())
    assert fidelity["fidelity"] == 1.0
    assert list((tmp_path / "run" / "trajectories" / "images").glob("*.png"))
    made = tmp_path / "run" / "checkpoints" / "step-2"
    tower = lambda folder: weights_digest(load_model(str(folder), torch.float32).base_model.visual)
    assert tower(made) == tower(model)  # frozen
    assert weights_digest(load_model(str(made), torch.float32)) != weights_digest(load_model(str(model), torch.float32))
    assert load_renderer(str(made)).patches is not None


def test_a_resumed_run_ends_with_the_same_weights(model: Path, screens: Path, tmp_path: Path) -> None:
    digest = lambda out: weights_digest(load_model(str(out / "checkpoints" / "step-2"), torch.float32))
    TrainRun(guide(model, screens, tmp_path / "whole"), Console(quiet=True)).fit()
    cut = tmp_path / "cut"
    TrainRun(guide(model, screens, cut, "trainer.total_training_steps=1"), Console(quiet=True)).fit()
    TrainRun(guide(model, screens, cut), Console(quiet=True)).fit()
    assert digest(cut) == digest(tmp_path / "whole")


def test_questions_with_images_are_trained_on_and_stored_attempts_imitated(model: Path, tmp_path: Path) -> None:
    for i, image in enumerate(pictures()):
        (tmp_path / f"{i}.png").write_bytes(image.data)
    rows = [{"question": "<image>How many?", "images": [f"{i}.png"], "answer": "A"} for i in range(3)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = {"messages": [{"role": "user", "content": "<image>?"}, {"role": "assistant", "content": "A"}]}
    (tmp_path / "said.jsonl").write_text(json.dumps({**said, "images": ["0.png"]}) + "\n")
    common = [
        *(f"actor_rollout_ref.model.path={model}", "agent.template=qwen2.5-vl", "agent.agent_type=chat"),
        *(f"data.train_files={tmp_path / 'rows.jsonl'}", "agent.reward_name=em", "data.train_batch_size=3"),
        *(
            "data.max_response_length=6",
            "trainer.total_training_steps=1",
            "trainer.save_freq=-1",
            "trainer.test_freq=-1",
        ),
        *("trainer.val_before_train=False", "actor_rollout_ref.rollout.n=2", "trainer.threads=1"),
    ]
    TrainRun(compose(None, [*common, f"trainer.default_local_dir={tmp_path / 'run'}"]), Console(quiet=True)).fit()
    from recollect.training.sft.sequences import SequenceLimits, read_samples

    renderer = load_renderer(str(model), "qwen2.5-vl")
    again = read_samples([str(tmp_path / "run")], renderer, SequenceLimits(min_reward=-1.0))
    assert len(again.samples) == 6
    assert all(len(sample.images) == 1 for sample in again.samples)
    (one,) = read_samples([str(tmp_path / "said.jsonl")], renderer, SequenceLimits()).samples
    assert one.images[0] is pictures()[0]
    sft = [*common, f"sft.data={tmp_path / 'said.jsonl'}", "sft.steps=1", "sft.batch_size=1"]
    out = tmp_path / "after"
    TrainRun(compose(None, [*sft, f"trainer.default_local_dir={out}"]), Console(quiet=True)).fit()
    assert (out / "report.md").is_file()


def test_stored_attempts_are_learnt_from_offline(model: Path, screens: Path, tmp_path: Path) -> None:
    TrainRun(guide(model, screens, tmp_path / "run", "trainer.total_training_steps=1"), Console(quiet=True)).fit()
    settings = [
        *("agent.agent_type=gui", "agent.template=qwen2.5-vl", f"actor_rollout_ref.model.path={model}"),
        *(f"data.offline_files=[{tmp_path / 'run'}]", "data.train_batch_size=2", "agent.reward_name=gui_format"),
        *("trainer.save_freq=-1", "trainer.test_freq=-1", "trainer.val_before_train=False", "trainer.threads=1"),
    ]
    out = tmp_path / "offline"
    TrainRun(compose(None, [*settings, f"trainer.default_local_dir={out}"]), Console(quiet=True)).fit()
    assert (out / "report.md").is_file()
