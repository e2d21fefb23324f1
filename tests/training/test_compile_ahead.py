"""Compiling ahead: what the processes of a run on a GPU do, here by the embedded model on the CPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from recollect.config.compose import compose
from recollect.models.load import load_config, load_model
from recollect.training import compile_ahead as ahead

SETTINGS = [
    *("trainer.device=cpu", "data.train_batch_size=2", "actor_rollout_ref.rollout.n=3", "trainer.threads=1"),
    *("actor_rollout_ref.actor.dtype=float32", "actor_rollout_ref.rollout.dtype=float32"),
]


@pytest.mark.parametrize("part", ahead.PARTS)
@pytest.mark.parametrize("more", [[], ["actor_rollout_ref.actor.use_kl_loss=True", "sft.steps=2"]])
def test_a_part_runs_by_the_code_of_the_run(part: str, more: list[str]) -> None:
    cfg = compose("needle", [*SETTINGS, *more])
    ahead.compile_part(part, cfg, cfg.actor_rollout_ref.model.path, (2,))


@pytest.mark.parametrize(("rows", "parts"), [(512, ["many rows", "few rows"]), (64, ["few rows"]), (3, ["few rows"])])
def test_the_parts_together_have_every_number_of_rows(rows: int, parts: list[str]) -> None:
    seen = set[int]()
    for part in parts:
        tokens = ahead.lengths(part, min(rows, ahead.FEW) if part == "few rows" else rows)
        assert min(tokens) >= 2
        seen |= {sum(n > step for n in tokens) for step in range(max(tokens))}
    buckets = {1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512}
    up = lambda n: min(b for b in buckets if b >= n)
    assert {up(n) for n in seen} == {up(n) for n in range(1, rows + 1)}


def test_few_layers_are_as_wide_as_all(tmp_path: Path) -> None:
    config = load_config("tiny")
    config.num_hidden_layers = 9
    config.layer_types = ["full_attention"] * 9
    ahead.save_few_layers(config, tmp_path, "cpu")
    made = load_model(str(tmp_path), torch.float32, "cpu", "eager")
    assert made.config.num_hidden_layers == ahead.LAYERS == len(made.config.layer_types)
    assert (made.config.hidden_size, made.config.vocab_size) == (config.hidden_size, config.vocab_size)


def test_parameters_are_about_right() -> None:
    model = load_model("tiny", torch.float32, "cpu", "eager")
    assert ahead.parameters(model.config) == pytest.approx(sum(p.numel() for p in model.parameters()), rel=0.35)


def test_nothing_is_started_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "start", lambda *args: pytest.fail("started"))
    assert ahead.compile_ahead(compose("needle", SETTINGS), "tiny", ()).processes == ()


@pytest.fixture
def _gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As if there were a GPU, and a model worth compiling."""
    monkeypatch.setattr(ahead, "pick_device", lambda name: "cuda")
    monkeypatch.setattr(ahead, "parameters", lambda config: 2e8)
    monkeypatch.setattr(ahead, "version", lambda name: "1")
    monkeypatch.setattr(ahead.os, "cpu_count", lambda: 16)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "GPU")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


@pytest.mark.usefixtures("_gpu")
def test_what_was_compiled_before_is_not_compiled_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started: list[str] = []
    process: Any = SimpleNamespace()
    monkeypatch.setattr(ahead, "start", lambda part, *args: started.append(part) or process)
    cfg = compose("needle", SETTINGS)
    assert ahead.compile_ahead(cfg, "tiny", ()).processes == [process] * 3
    for part in ("prompts", "few rows"):
        ahead.note(cfg, load_config("tiny"), part).touch()
    assert len(ahead.compile_ahead(cfg, "tiny", ()).processes) == 1
    assert started == ["prompts", "few rows", "updates", "updates"]
    others = ["actor_rollout_ref.actor.optim.lr=3e-5", "data.max_response_length=99", "actor_rollout_ref.rollout.n=4"]
    assert ahead.note(compose("needle", [*SETTINGS, *others]), load_config("tiny"), "prompts").exists()
    wider = compose("needle", [*SETTINGS, "actor_rollout_ref.rollout.n=50"])
    assert len(ahead.compile_ahead(wider, "tiny", ()).processes) == 4
    beside_others = compose("needle", [*SETTINGS, "actor_rollout_ref.rollout.gpu_memory_utilization=0.06"])
    assert ahead.compile_ahead(beside_others, "tiny", ()).processes == ()


def test_a_process_ends_with_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it is told to do takes longer than the run."""
    monkeypatch.setattr(ahead, "__name__", "this.module.does.not.exist")
    gone = ahead.start("updates", compose("needle", SETTINGS), "tiny", ())
    assert gone.wait(60) != 0  # a process that fails is nothing that the run notices
    slow = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    compiling = ahead.CompilingAhead([gone, slow])
    compiling.close()
    assert slow.returncode == -9
