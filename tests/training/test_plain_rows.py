"""Whole runs of models that compute rows in the library's own way: sampled, trained, stored, resumed, asked."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from recollect.config import Config
from recollect.config.compose import compose
from recollect.models.load import load_tokenizer
from recollect.models.plain_rows import is_plain
from recollect.runtime.console import Console
from recollect.samplers.bindings import acting_roles
from recollect.training.train_run import TrainRun
from recollect.types import BadInput, Sampling
from recollect.workflows.dry_run.dry_run import dry_run
from tests.models.families import FAMILIES
from tests.training.test_resume import command, rows


def save(folder: Path, name: str) -> Path:
    """A random model of a family with the embedded model's tokenizer."""
    tokenizer = load_tokenizer("tiny")
    values = {**FAMILIES[name], "vocab_size": len(tokenizer), "max_position_embeddings": 2048}
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**values)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def config(out: Path, model: Path, *more: str) -> Config:
    return compose("needle", [*command(out, model, "trainer.val_before_train=false", *more)[2:]])


PPO = ["algorithm.adv_estimator=gae", "actor_rollout_ref.model.enable_gradient_checkpointing=true"]
LORA = ["actor_rollout_ref.model.lora_rank=2", "actor_rollout_ref.actor.use_kl_loss=true"]
FLOAT = ["actor_rollout_ref.actor.dtype=float32", "actor_rollout_ref.rollout.dtype=float32"]


@pytest.mark.parametrize(
    ("name", "more"), [("Qwen3Next", FLOAT), ("GptOss", PPO), ("Qwen3_5Text", LORA), ("Qwen3Moe", FLOAT)]
)
def test_a_run(name: str, more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = save(tmp_path / name, name)
    cfg = config(tmp_path / "run", model, *more, "trainer.total_training_steps=2", "trainer.save_freq=1")
    fit = TrainRun(cfg, Console())
    fit.fit()
    plain = name != "Qwen3Moe"
    assert ("plain rows with the library's attention" in capsys.readouterr().out) == plain
    assert is_plain(fit.policy.sampler.model) == plain
    drifts = [row["actor/logprob_drift"] for row in rows(tmp_path / "run") if "actor/logprob_drift" in row]
    assert len(drifts) == 2
    assert max(drifts) < (1e-4 if more is FLOAT else 0.1)
    policies = acting_roles(cfg, str(tmp_path / "run"), {}, "")
    engine: Any = policies.bindings["*"].policy
    done = asyncio.run(engine.generate([5, 6, 7], Sampling(max_tokens=4)))
    assert len(done.ids) <= 4


@pytest.mark.parametrize("name", ["Qwen3Next", "Qwen3Moe"])
def test_a_dry_run_says_how_rows_are_computed(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cfg = config(tmp_path / "run", save(tmp_path / name, name))
    found = dry_run(cfg, Console(quiet=True))
    assert found["attention"] == {"Qwen3Next": "plain", "Qwen3Moe": "fast"}[name]
    assert json.loads(capsys.readouterr().out)["attention"] == found["attention"]


def test_what_cannot_be_computed_is_refused_by_the_layers_name(tmp_path: Path) -> None:
    cfg = config(tmp_path / "run", save(tmp_path / "Doge", "Doge"))
    for work in (lambda: dry_run(cfg, Console(quiet=True)), lambda: TrainRun(cfg, Console(quiet=True))):
        with pytest.raises(BadInput, match="DogeAttention of layer 0"):
            work()
