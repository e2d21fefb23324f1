"""The recipes that learn from nothing: quick runs with few steps, and the real ones, which take minutes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from recollect.config.compose import compose
from recollect.runs.directory import RunDirectory
from recollect.runtime.console import Console
from recollect.training.train_run import TrainRun

MINUTES = {"arithmetic": 5, "react_search": 10, "code": 10, "gui_screen": 15, "count_shapes": 15}
QUICK = [
    *("sft.steps=2", "sft.batch_size=4", "trainer.total_training_steps=1", "data.train_batch_size=2"),
    *("actor_rollout_ref.rollout.n=2", "data.val_max_samples=2", "trainer.threads=1"),
]


@pytest.mark.parametrize("recipe", MINUTES)
def test_a_recipe_runs(recipe: str, tmp_path: Path) -> None:
    where = [f"trainer.default_local_dir={tmp_path / 'run'}", f"search.cache_dir={tmp_path}"]
    report = TrainRun(compose(recipe, [*QUICK, *where]), Console(quiet=True)).fit()
    assert set(report["held_out"]) == {"base", "sft", "rl"}
    assert None not in report["held_out"].values()
    assert report["fidelity"] == 1
    (row,) = [r for r in RunDirectory(tmp_path / "run").metrics() if "reward/mean" in r]
    assert row["rollout/failures"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("recipe", MINUTES)
def test_a_recipe_learns_in_time(recipe: str, tmp_path: Path) -> None:
    start = time.monotonic()
    where = [f"trainer.default_local_dir={tmp_path / 'run'}", f"search.cache_dir={tmp_path}"]
    report = TrainRun(compose(recipe, where), Console(quiet=True)).fit()
    assert report["held_out"]["sft"] <= 0.5
    assert report["held_out"]["rl"] >= 0.9
    assert report["fidelity"] == 1
    assert time.monotonic() - start < 60 * MINUTES[recipe]
