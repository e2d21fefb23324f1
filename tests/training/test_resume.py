"""A run killed at any moment and run again ends with the same weights and the same metrics as one left alone."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests import commands
from tests.training import killing

SETTINGS = [
    "data.train_batch_size=4",
    "actor_rollout_ref.rollout.n=4",
    "data.needle.chunks=2",
    "data.val_max_samples=8",
    "evaluation.lengths=[1]",
    "evaluation.tasks=[4]",
    "trainer.total_training_steps=8",
    "trainer.save_freq=3",
    "trainer.threads=1",
]
BEST = ["trainer.test_freq=2", "trainer.best_metric=val/needle/maj@3", "trainer.max_ckpt_to_keep=2"]
SAMPLED = ["actor_rollout_ref.rollout.val_kwargs.n=3", "actor_rollout_ref.rollout.val_kwargs.do_sample=true"]
KL = ["actor_rollout_ref.actor.use_kl_loss=true", "actor_rollout_ref.actor.ppo_mini_batch_size=2"]
SFT = ["sft.steps=6", "sft.batch_size=9", "sft.save_freq=2"]
REWARD = '''
def some(answer):
    """A reward that an untrained model meets, different from answer to answer."""
    return sum(answer.encode()) % 7 / 6
'''


def command(out: Path, model: Path, *more: str) -> list[str]:
    """A short run whose rewards vary, so that every step changes the weights."""
    reward = out.parent / "reward.py"
    reward.write_text(REWARD)
    start = ["train", "needle", f"trainer.default_local_dir={out}", f"actor_rollout_ref.model.path={model}"]
    return [*start, *SETTINGS, f"agent.reward_name={reward}:some", *more]


def weights(run: Path, name: str = "step-8") -> dict[str, torch.Tensor]:
    loaded = load_file(run / "checkpoints" / name / "model.safetensors")
    return {name: tensor.clone() for name, tensor in loaded.items()}  # not mapped from a file that a test may change


def rows(run: Path) -> list[dict[str, Any]]:
    """Metrics without what depends on the clock or the process."""
    timed = ("time/", "tokens_per_second", "memory/")
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if not k.startswith(timed)} for line in lines]


def assert_same(a: Path, b: Path, steps: int = 8, best: bool = False) -> None:
    """Equal weights, metrics rows, reports and, where there is one, best checkpoint."""
    for name in (f"step-{steps}", *(("best",) if best else ())):
        one, two = weights(a, name), weights(b, name)
        assert one.keys() == two.keys()
        for key in one:
            assert torch.equal(one[key], two[key]), (name, key)
    assert rows(a) == rows(b)
    assert [r["step"] for r in rows(a) if "reward/mean" in r] == list(range(1, steps + 1))
    first, second = (json.loads((run / "report.json").read_text()) for run in (a, b))
    for key in ("held_out", "by_length", "validation", "best", "stopped", "fidelity", "trained_tokens"):
        assert first[key] == second[key], key
    states = [json.loads((run / "checkpoints" / f"step-{steps}" / "trainer_state.json").read_text()) for run in (a, b)]
    for state in states:
        state.pop("seconds"), state.pop("metrics_size")  # rows hold times, whose digits vary
    assert states[0] == states[1]


def kill_often(tmp_path: Path, make: Any, kills: list[str], seed: int, share: float) -> None:
    """One run left alone, and one killed at a random moment of each of some kinds, one after another."""
    log = tmp_path / "whole.log"
    assert killing.run(make(tmp_path / "whole"), log) == 0, log.read_text()
    counts, rng, died = killing.moments(log), random.Random(seed), 0
    for i, kind in enumerate(kills):
        most = max(1, int(counts[kind] * share))
        code = killing.run(make(tmp_path / "killed"), tmp_path / f"{i}.log", kind, rng.randint(1, most))
        assert code in (0, -signal.SIGKILL), (tmp_path / f"{i}.log").read_text()
        died += code != 0
    assert died >= len(kills) / 2
    log = tmp_path / "last.log"
    assert killing.run(make(tmp_path / "killed"), log) == 0, log.read_text()


def test_killed_at_every_kind_of_moment(tmp_path: Path, small_model: Path) -> None:
    make = lambda out: command(out, small_model, *KL, *BEST, *SAMPLED)
    kills = ["validation token", "token", "sync", "update", "rename", "row"]
    kill_often(tmp_path, make, kills, 0, 0.3)
    assert_same(tmp_path / "whole", tmp_path / "killed", best=True)
    assert len({r["val/needle/maj@3"] for r in rows(tmp_path / "whole") if "phase" in r}) > 1
    left = sorted(p.name for p in (tmp_path / "killed" / "checkpoints").iterdir())
    assert left == sorted(p.name for p in (tmp_path / "whole" / "checkpoints").iterdir())


def test_killed_in_either_phase(tmp_path: Path, small_model: Path) -> None:
    make = lambda out: command(out, small_model, *KL, *SFT)
    kill_often(tmp_path, make, ["update", "sync", "rename"], 2, 0.5)
    assert_same(tmp_path / "whole", tmp_path / "killed")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_default_recipe_killed_at_many_moments(tmp_path: Path) -> None:
    short = ["trainer.total_training_steps=10", "trainer.save_freq=2", "evaluation.lengths=[1,4]", "trainer.threads=1"]
    sizes = ["evaluation.tasks=[16,8]", "data.val_max_samples=32", "trainer.test_freq=3", *SAMPLED]
    best = ["trainer.best_metric=val/needle/mean@3"]
    make = lambda out: ["train", f"trainer.default_local_dir={out}", *short, *sizes, *best]
    kill_often(tmp_path, make, [random.Random(i).choice(killing.KINDS) for i in range(24)], 1, 0.2)
    assert_same(tmp_path / "whole", tmp_path / "killed", 10, best=True)


@pytest.fixture(scope="module")
def left_alone(tmp_path_factory: pytest.TempPathFactory, small_model: Path) -> Path:
    """A plain run that nothing has stopped."""
    out = tmp_path_factory.mktemp("alone") / "run"
    log = out.with_suffix(".log")
    assert killing.run(command(out, small_model), log) == 0, log.read_text()
    return out


def test_ctrl_c_saves_and_exits_130(tmp_path: Path, small_model: Path, left_alone: Path) -> None:
    args = command(tmp_path / "stopped", small_model)
    process = subprocess.Popen(
        [sys.executable, "-m", "recollect", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if line.startswith("RL step 3/"):
                process.send_signal(signal.SIGINT)
                break
        _, error = process.communicate(timeout=200)
    finally:
        process.kill()  # whatever failed, nothing stays behind to hold a core
    assert process.returncode == 130, error
    assert "saved" in error
    assert killing.run(args, tmp_path / "log") == 0
    assert_same(left_alone, tmp_path / "stopped")


def test_a_broken_newest_checkpoint_falls_back(small_model: Path, left_alone: Path) -> None:
    """The run ends as it was before, so that others can use it."""
    out, expected = left_alone, weights(left_alone)
    args = command(out, small_model)
    newest = out / "checkpoints" / "step-8"
    data = (newest / "model.safetensors").read_bytes()
    (newest / "model.safetensors").write_bytes(data[: len(data) // 2])
    (out / "report.json").unlink()
    done = commands.run(*args)
    assert done.returncode == 0, done.stderr
    assert "step-8 cannot be read" in done.stderr
    assert all(torch.equal(expected[k], v) for k, v in weights(out).items())


def test_going_on_from_another_run(tmp_path: Path, small_model: Path) -> None:
    """A new run from a checkpoint ends where the run that it came from ends, with its own rows only."""
    whole, branch = tmp_path / "whole", tmp_path / "branch"
    assert killing.run(command(whole, small_model, *KL, "trainer.max_ckpt_to_keep=9"), tmp_path / "log") == 0
    source = whole / "checkpoints" / "step-3"
    before = {p: p.stat().st_mtime_ns for p in whole.rglob("*") if p.is_file()}
    resume = ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={source}"]
    args = command(branch, small_model, *KL, *resume)
    assert killing.run(args, tmp_path / "a.log", "row", 3) == -signal.SIGKILL
    assert killing.run(args, tmp_path / "b.log") == 0, (tmp_path / "b.log").read_text()
    assert f"going on from {source} at step 3" in (tmp_path / "a.log").read_text()
    one, two = weights(whole), weights(branch)
    assert all(torch.equal(one[k], two[k]) for k in one)
    assert rows(branch) == [r for r in rows(whole) if r["step"] > 3]
    assert {p: p.stat().st_mtime_ns for p in whole.rglob("*") if p.is_file()} == before
    back = command(whole, small_model, *KL, *resume, "trainer.max_ckpt_to_keep=9")
    os.remove(whole / "report.json")
    expected = rows(whole)
    assert killing.run(back, tmp_path / "c.log") == 0  # back to one of its own
    assert "at step 3" in (tmp_path / "c.log").read_text()
    assert rows(whole) == expected
