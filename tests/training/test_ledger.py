"""The recipe `ledger` runs: warm start, several questions per trajectory, rewards of each, a report."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from recollect.config.compose import compose
from recollect.runtime.console import Console
from recollect.training.train_run import TrainRun
from recollect.trajectories.stored_rows import read_trajectories


def test_the_recipe_trains_and_stores_what_the_memory_did(tmp_path: Path, small_model: Path) -> None:
    cfg = compose(
        "ledger",
        [
            *(f"trainer.default_local_dir={tmp_path / 'run'}", f"actor_rollout_ref.model.path={small_model}"),
            *("trainer.total_training_steps=2", "sft.steps=2", "sft.batch_size=8", "data.train_batch_size=2"),
            *("actor_rollout_ref.rollout.n=2", "data.val_max_samples=2", "evaluation.lengths=[1]"),
            *("evaluation.tasks=[2]", "trainer.device=cpu", "data.max_response_length=12"),
        ],
    )
    report = TrainRun(cfg, Console(True)).fit()
    assert report["steps"] == 2
    assert report["fidelity"] == 1.0
    rows = [r for p in sorted((tmp_path / "run" / "trajectories").glob("step-*")) for r in read_trajectories(p)]
    assert len(rows) == 8
    for row in rows:
        assert [t["is_final"] for t in row["turns"][:4]] == [0, 0, 0, 0]
        assert sorted({t["is_final"] for t in row["turns"]}) == [0, 1, 2, 3, 4]
        assert len(row["question_answers"]) == len(row["asked"]) == 4
        assert len(row["notes"]) == 4
        assert np.isfinite(row["reward"])
