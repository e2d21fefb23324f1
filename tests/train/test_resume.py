"""A run killed at any moment and run again ends with the same weights and the same metrics as one left alone."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

SETTINGS = [
    "data.train_batch_size=4",
    "actor_rollout_ref.rollout.n=4",
    "data.needle.chunks=2",
    "data.val_max_samples=8",
    "evaluation.lengths=[1]",
    "evaluation.tasks=[4]",
    "trainer.total_training_steps=8",
    "trainer.save_freq=2",
    "trainer.threads=1",
]


def command(out: Path, model: Path, *more: str) -> list[str]:
    start = [sys.executable, "-m", "recollect", "train", "needle", f"trainer.default_local_dir={out}"]
    return [*start, f"actor_rollout_ref.model.path={model}", *SETTINGS, *more]


def weights(run: Path, step: int = 8) -> dict[str, torch.Tensor]:
    loaded = load_file(run / "checkpoints" / f"step-{step}" / "model.safetensors")
    return {name: tensor.clone() for name, tensor in loaded.items()}  # not mapped from a file that a test may change


def rows(run: Path) -> list[dict[str, Any]]:
    """Metrics without what depends on the clock or the process."""
    timed = ("time/", "tokens_per_second", "memory/")
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if not k.startswith(timed)} for line in lines]


def assert_same(a: Path, b: Path) -> None:
    one, two = weights(a), weights(b)
    assert one.keys() == two.keys()
    for name in one:
        assert torch.equal(one[name], two[name]), name
    assert rows(a) == rows(b)
    assert [r["step"] for r in rows(a) if "reward/mean" in r] == list(range(1, 9))


def run_and_kill(args: list[str], kills: list[float]) -> int:
    """Run to the end, killing the process without warning after each of some delays."""
    for delay in kills:
        process = subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(delay)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
    return subprocess.run(args, stdout=subprocess.DEVNULL, check=False).returncode


@pytest.mark.parametrize("variant", [[], ["sft.steps=6", "sft.batch_size=9", "sft.save_freq=2"]], ids=["rl", "sft+rl"])
def test_killed_and_resumed_equals_uninterrupted(tmp_path: Path, small_model: Path, variant: list[str]) -> None:
    kl = ["actor_rollout_ref.actor.use_kl_loss=true", "actor_rollout_ref.actor.ppo_mini_batch_size=2"]
    started = time.monotonic()
    assert run_and_kill(command(tmp_path / "whole", small_model, *kl, *variant), []) == 0
    took = time.monotonic() - started
    rng = random.Random(len(variant))
    kills = [took * rng.uniform(0.45, 0.95) for _ in range(3)]
    assert run_and_kill(command(tmp_path / "killed", small_model, *kl, *variant), kills) == 0
    assert_same(tmp_path / "whole", tmp_path / "killed")
    assert json.loads((tmp_path / "killed" / "fidelity.json").read_text())["fidelity"] == 1.0


def test_ctrl_c_saves_and_exits_130(tmp_path: Path, small_model: Path) -> None:
    args = command(tmp_path / "stopped", small_model)
    process = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("RL step 3/"):
            process.send_signal(signal.SIGINT)
            break
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    assert "saved" in error
    assert run_and_kill(args, []) == 0
    assert run_and_kill(command(tmp_path / "whole", small_model), []) == 0
    assert_same(tmp_path / "whole", tmp_path / "stopped")


def test_a_broken_newest_checkpoint_falls_back(tmp_path: Path, small_model: Path) -> None:
    out = tmp_path / "run"
    args = command(out, small_model)
    assert run_and_kill(args, []) == 0
    expected = weights(out)
    newest = out / "checkpoints" / "step-8"
    data = (newest / "model.safetensors").read_bytes()
    (newest / "model.safetensors").write_bytes(data[: len(data) // 2])
    (out / "report.json").unlink()
    done = subprocess.run(args, capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr
    assert "step-8 cannot be read" in done.stderr
    assert all(torch.equal(expected[k], v) for k, v in weights(out).items())
