"""Prompts and weights in turn: what each phase gave, and the store that they share."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from recollect.config.compose import compose
from recollect.models.checkpoints import find_checkpoint
from recollect.runtime.console import Console
from recollect.trajectories.codec import decode
from recollect.trajectories.stored_rows import read_trajectories
from recollect.types import BadInput
from recollect.workflows.optimize.optimize_request import OptimizeRequest
from recollect.workflows.optimize.phases import Phases, phase_names

SMALL = ["evaluation.lengths=[1]", "evaluation.tasks=[6]", "trainer.total_training_steps=2", "trainer.device=cpu"]
SMALL += ["data.train_batch_size=2", "actor_rollout_ref.rollout.n=2", "trainer.threads=1"]


def phases(asked: OptimizeRequest) -> Phases:
    return Phases(lambda more: compose("needle", [*SMALL, *more]), asked, find_checkpoint("tiny")[0], Console(True))


def test_names() -> None:
    assert phase_names("prompts, weights,prompts") == ("prompts", "weights", "prompts")
    for text in ("weights,songs", "", "prompts,"):
        with pytest.raises(BadInput, match="known: prompts, weights"):
            phase_names(text)


def test_each_phase_goes_on_from_the_one_before(tmp_path: Path) -> None:
    pytest.importorskip("dspy")
    pytest.importorskip("gepa")
    asked = OptimizeRequest("gepa", 30, tmp_path / "out", num_train=2, num_val=3, threads=2)
    found = phases(asked).run(("prompts", "weights"))["phases"]
    start, prompts, weights = found
    assert [row["name"] for row in found] == ["start", "prompts", "weights"]
    assert prompts["weights"] == start["weights"] == find_checkpoint("tiny")[0]
    assert weights["prompts"] == prompts["prompts"] == str(tmp_path / "out" / "1-prompts" / "prompts.json")
    assert weights["weights"] == find_checkpoint(str(tmp_path / "out" / "2-weights"))[0]
    assert prompts["paired"]["first"] == start["reward"]
    assert weights["paired"]["first"] == prompts["reward"]
    assert weights["took"] == "2 steps"

    store = sorted((tmp_path / "out" / "trajectories").iterdir())
    assert [path.name.split("-")[1] for path in store] == ["prompts", "weights", "weights"]
    rows = [row for path in store for row in read_trajectories(path)]
    assert len(rows) >= 3 + 2 * 2 * 2
    assert all(decode(row, "")[1].turns[0].trainable for row in rows)

    again = phases(asked)
    again.weights = "nowhere"  # nothing is done again
    assert again.run(("prompts", "weights"))["phases"] == found
    assert json.loads((tmp_path / "out" / "phases.json").read_text())["rows"] == found
    with pytest.raises(BadInput, match="holds other phases"):
        phases(replace(asked, seed=1)).run(("prompts", "weights"))
