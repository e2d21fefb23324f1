"""Every estimator, loss, divergence and switch of the trainer runs for real, and cut in two ends the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from recollect.config.compose import compose
from recollect.runtime.console import Console
from recollect.training.rl import gather
from recollect.training.train_run import TrainRun
from tests.metric_names import undocumented
from tests.training.test_resume import command, rows

ACTOR, ALGORITHM = "actor_rollout_ref.actor", "algorithm"
CONSTANT = [f"{ACTOR}.optim.lr_scheduler_type=constant", f"{ACTOR}.optim.lr=1e-3", "trainer.save_freq=1"]
VARIANTS = {
    **{
        name: [f"{ALGORITHM}.adv_estimator={name}"]
        for name in ("rloo", "remax", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "opo", "gpg")
    },
    **{name: [f"{ACTOR}.policy_loss.loss_mode={name}"] for name in ("gspo", "cispo", "dr_grpo", "reinforce")},
    "critic": [f"{ALGORITHM}.adv_estimator=gae", "trainer.critic_warmup=1", f"{ACTOR}.ppo_mini_batch_size=2"],
    "shared critic": [f"{ALGORITHM}.adv_estimator=gae", "critic.model.share_actor=true", "critic.ppo_epochs=2"],
    "KL in the reward": [
        f"{ALGORITHM}.adv_estimator=reinforce_plus_plus",
        f"{ALGORITHM}.use_kl_in_reward=true",
        f"{ALGORITHM}.kl_ctrl.type=adaptive",
        f"{ALGORITHM}.kl_ctrl.kl_coef=0.1",
        f"{ALGORITHM}.kl_ctrl.horizon=20",
    ],
    "exact KL in reward and loss": [
        f"{ALGORITHM}.use_kl_in_reward=true",
        f"{ALGORITHM}.kl_penalty=full",
        f"{ACTOR}.use_kl_loss=true",
        f"{ACTOR}.kl_loss_type=full",
        f"{ACTOR}.ppo_epochs=2",
    ],
    "dynamic sampling": [f"{ALGORITHM}.filter_groups.enable=true", f"{ALGORITHM}.filter_groups.max_num_gen_batches=3"],
    "importance": [f"{ALGORITHM}.rollout_is=sequence", f"{ACTOR}.entropy_coeff=0.01"],
    "by role": [f"{ALGORITHM}.group_by=role", f"{ACTOR}.loss_agg_mode=seq-mean-token-mean"],
    "small micro-batches": [
        f"{ACTOR}.use_dynamic_bsz=false",
        f"{ACTOR}.ppo_micro_batch_size_per_gpu=3",
        "actor_rollout_ref.model.enable_gradient_checkpointing=false",
    ],
    "muon on LoRA": [
        f"{ACTOR}.optim.name=muon",
        "actor_rollout_ref.model.lora_rank=2",
        f"{ACTOR}.use_kl_loss=true",
    ],
    "row by row": ["actor_rollout_ref.model.use_remove_padding=false", f"{ACTOR}.ppo_mini_batch_size=2"],
}
RESUMED = ("critic", "shared critic", "KL in the reward", "dynamic sampling", "remax")


def run(out: Path, model: Path, steps: int, *more: str) -> dict[str, Any]:
    words = command(out, model, *CONSTANT, "trainer.val_before_train=false", *more)[2:]
    return TrainRun(compose("needle", [*words, f"trainer.total_training_steps={steps}"]), Console(quiet=True)).fit()


def weights(out: Path, step: int) -> dict[str, torch.Tensor]:
    folder = out / "checkpoints" / f"step-{step}"
    return load_file(next(f for f in folder.glob("*model.safetensors")))


def load_body(folder: Path) -> dict[str, torch.Tensor]:
    found = load_file(folder / "model.safetensors")
    return {name.removeprefix("model."): tensor.float() for name, tensor in found.items() if "lm_head" not in name}


def test_a_step_without_any_signal_goes_by(tmp_path: Path, small_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "has_signal", lambda *given: False)
    report = run(tmp_path / "run", small_model, 1, *VARIANTS["dynamic sampling"])
    assert (report["steps"], report["trained_tokens"], report["fidelity"]) == (1, 0, None)


@pytest.mark.parametrize("variant", VARIANTS)
def test_it_trains(variant: str, tmp_path: Path, small_model: Path) -> None:
    report = run(tmp_path / "run", small_model, 2, *VARIANTS[variant])
    assert report["steps"] == 2
    assert report["fidelity"] == 1.0
    made = rows(tmp_path / "run")
    steps = [r for r in made if "reward/mean" in r]
    assert [r["step"] for r in steps] == [1, 2]
    assert undocumented(name for row in made for name in row) == []
    assert all(isinstance(v, int | float | str) for r in made for v in r.values())  # no NaN, which is written as null
    before, after = weights(tmp_path / "run", 1), weights(tmp_path / "run", 2)
    assert any(not torch.equal(before[name], after[name]) for name in before)
    if variant == "critic":
        first, start = (load_body(p) for p in (tmp_path / "run" / "checkpoints" / "step-1" / "critic", small_model))
        assert any(not torch.equal(first[name], start[name]) for name in first)  # its own body is warmed up too
        assert steps[0]["actor/grad_norm"] == 0  # the first step only warms the critic up
        assert steps[1]["actor/grad_norm"] > 0
        assert {"critic/value_loss", "critic/vf_explained_var"} <= steps[0].keys()
    if variant == "KL in the reward":
        assert steps[0]["actor/kl_coef"] == 0.1
        assert steps[1]["actor/kl_coef"] < 0.1  # at the start the policy is the reference: far below the target
    if variant == "dynamic sampling":
        assert steps[0]["rollout/gen_batches"] >= 1


@pytest.mark.parametrize("variant", RESUMED)
def test_cut_in_two_it_ends_the_same(variant: str, tmp_path: Path, small_model: Path) -> None:
    more = VARIANTS[variant]
    run(tmp_path / "whole", small_model, 4, *more)
    for steps in (2, 4):
        run(tmp_path / "parts", small_model, steps, *more)
    whole, parts = weights(tmp_path / "whole", 4), weights(tmp_path / "parts", 4)
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    kept = [r for r in rows(tmp_path / "parts") if "reward/mean" in r]
    assert kept == [r for r in rows(tmp_path / "whole") if "reward/mean" in r]
    states = [
        json.loads((tmp_path / out / "checkpoints/step-4/trainer_state.json").read_text()) for out in ("whole", "parts")
    ]
    for key in ("step", "batches", "kl_coef", "trained_tokens"):
        assert states[0][key] == states[1][key]
