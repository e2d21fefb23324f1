"""Learning rates: over steps, as in verl, whatever number of updates a step has."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from recollect.config import Optim
from recollect.config.compose import from_yaml
from recollect.training.learner.optimizers import learning_rate, warmup_steps
from tests.training.test_resume import rows
from tests.training.test_train_run import fit

ACTOR = "actor_rollout_ref.actor"


def verl(step: int, warmup: int, total: int, cosine: bool, least: float = 0.0) -> float:
    """What verl's scheduler multiplies the learning rate by, from its description."""
    if step < warmup:
        return step / max(1, warmup)
    if not cosine:
        return 1.0
    progress = (step - warmup) / max(1, total - warmup)
    return max(least, (1 - least) / 2 * math.cos(math.pi * progress) + (1 + least) / 2)


@pytest.mark.parametrize("kind", ["constant", "cosine"])
@pytest.mark.parametrize(("given", "ratio", "warmup"), [(4, 0.5, 4), (-1, 0.25, 5), (-1, 0.29, 5), (0, 0.5, 0)])
def test_zero_indexed_schedules_are_verls(kind: str, given: int, ratio: float, warmup: int) -> None:
    optim = Optim(lr=2.0, lr_warmup_steps=given, lr_warmup_steps_ratio=ratio, lr_scheduler_type=kind, min_lr_ratio=0.1)
    optim.zero_indexed_step = True
    assert warmup_steps(optim, 20) == warmup
    for step in range(20):
        assert learning_rate(optim, step, 20) == pytest.approx(2.0 * verl(step, warmup, 20, kind == "cosine", 0.1))


def test_the_first_step_learns_unless_it_is_asked_not_to() -> None:
    rates = [learning_rate(Optim(lr=1.0, lr_warmup_steps=4), step, 10) for step in range(5)]
    assert rates == [0.25, 0.5, 0.75, 1.0, 1.0]


def test_all_updates_of_a_step_have_its_learning_rate(tmp_path: Path, small_model: Path) -> None:
    """Four updates a step, warm-up over four steps: in terms of updates it would be over after the first step."""
    more = [f"{ACTOR}.ppo_mini_batch_size=1", f"{ACTOR}.optim.lr_warmup_steps=4", "trainer.total_training_steps=3"]
    more += [f"{ACTOR}.optim.lr_scheduler_type=constant", f"{ACTOR}.entropy_coeff=0.001", "trainer.test_freq=-1"]
    fit(tmp_path / "run", small_model, *more)
    cfg = from_yaml((tmp_path / "run" / "config.yaml").read_text())
    assert cfg.data.train_batch_size > 1
    lr, found = cfg.actor_rollout_ref.actor.optim.lr, rows(tmp_path / "run")
    assert [row["actor/lr"] for row in found if "actor/lr" in row] == pytest.approx([lr / 4, lr / 2, lr * 3 / 4])
