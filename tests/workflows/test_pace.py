"""The time that `--dry-run` predicts: counted from what was timed, for every kind of model that runs fast."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from recollect.config.compose import compose
from recollect.models.load import load_config
from recollect.workflows.dry_run.dry_run import duration
from recollect.workflows.dry_run.pace import Pace, counted, measure, pace_here
from recollect.workflows.dry_run.predict import TokenEstimate
from tests.commands import run

PACE = Pace(prefill=0.001, decode=0.1, rows=8, forward=0.001, train=0.003, optimizer=0.5)
MADE = TokenEstimate(turns=2, prompt=100, response=20, longest=80)
SMALL = ("data.train_batch_size=4", "actor_rollout_ref.rollout.n=2", "agent.agent_type=chat", "recurrent.enable=null")


def test_a_step_is_counted_up() -> None:
    took = counted(compose(None, [*SMALL]), MADE, PACE)
    prompts, sampled = 4 * (100 + 20), 4 * 2 * 20
    assert took.rollout == pytest.approx(prompts * 0.001 + sampled / 8 * 0.1)
    assert took.update == pytest.approx((prompts + sampled) * 0.003 + 0.5)


def test_more_updates_and_a_reference_take_longer() -> None:
    once = counted(compose(None, [*SMALL]), MADE, PACE).update
    actor = "actor_rollout_ref.actor."
    halves = counted(compose(None, [*SMALL, f"{actor}ppo_mini_batch_size=2"]), MADE, PACE).update
    assert halves == pytest.approx(once + 0.5 + (480 + 160) * 0.001)  # a second update, and old log-probabilities
    assert counted(compose(None, [*SMALL, f"{actor}use_kl_loss=true"]), MADE, PACE).update > once
    assert counted(compose(None, [*SMALL, f"{actor}ppo_epochs=2"]), MADE, PACE).update > 1.5 * once


def test_what_is_timed_is_positive_and_threads_are_left_as_they_were(small_model: Path) -> None:
    before = torch.get_num_threads()
    cfg = compose(None, [f"actor_rollout_ref.model.path={small_model}", "trainer.device=cpu"])
    pace = measure(cfg, load_config(str(small_model)), 4)
    assert pace is not None
    assert min(pace.prefill, pace.forward, pace.train, pace.optimizer) > 0
    assert pace.rows == 4
    assert torch.get_num_threads() == before


def test_nothing_is_said_of_stored_trajectories(small_model: Path, tmp_path: Path) -> None:
    cfg = compose(None, [f"actor_rollout_ref.model.path={small_model}"])
    cfg.data.offline_files = [str(tmp_path)]
    assert pace_here(cfg) is None


def test_the_dry_run_says_it(small_model: Path, tmp_path: Path) -> None:
    words = [f"actor_rollout_ref.model.path={small_model}", f"trainer.default_local_dir={tmp_path / 'run'}"]
    said = run("train", "--dry-run", *words)
    assert "time here" in said.stdout, said.stderr
    found = json.loads(run("train", "--dry-run", "--quiet", *words).stdout)["seconds"]
    assert found["step"] == pytest.approx(found["rollout"] + found["update"], rel=0.02)
    assert found["steps"] == pytest.approx(36 * found["step"], rel=0.02)
    assert found["sft"] == 0
    assert "evaluation" not in found  # made-up documents of several lengths


@pytest.mark.parametrize(("seconds", "said"), [(0.31, "0.3 s"), (42.3, "42 s"), (150, "2.5 min"), (9000, "2.5 h")])
def test_durations_are_for_people(seconds: float, said: str) -> None:
    assert duration(seconds) == said
