"""Settings that TRL's trainers know: a warm-up ratio, a target divergence, a weight of the value loss, log steps."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import torch

from recollect.config import Config, Optim
from recollect.config import Critic as CriticConfig
from recollect.config.compose import compose
from recollect.packing.batch import Batch
from recollect.runtime.console import Console
from recollect.sources.task_stream import training_tasks
from recollect.training.learner.learner import PolicyTargets
from recollect.training.learner.local_learner import LocalLearner
from recollect.training.learner.optimizers import learning_rate
from recollect.training.learner.trained_model import TrainedModel
from recollect.training.rl.annotate import annotate
from recollect.training.sft.sft_run import supervise
from tests.conftest import make_pair
from tests.packing.test_loss_invariance import samples
from tests.training.test_critic import critic_of, targets, value_model


def test_a_warm_up_ratio_is_a_share_of_all_updates() -> None:
    optim = Optim(lr=1.0, lr_warmup_steps_ratio=0.25, lr_scheduler_type="linear")
    assert [learning_rate(optim, step, 8) for step in range(4)] == pytest.approx([0.5, 1.0, 1.0, 5 / 6])
    optim.lr_warmup_steps = 4  # a number of updates goes before a share of them
    assert learning_rate(optim, 0, 8) == 0.25


def updates(target_kl: float | None) -> tuple[float, int]:
    """How many of four updates on one batch are made, and how far the schedule has come."""
    cfg = Config()
    cfg.actor_rollout_ref.actor.ppo_epochs, cfg.actor_rollout_ref.actor.target_kl = 4, target_kl
    learner = TrainedModel(copy.deepcopy(make_pair("Qwen3")[1]), Optim(lr=1e-2), 4, torch.float32)
    batch = Batch.of(samples(1))
    advantages = torch.tensor([float(t % 3) - 1 for t in batch.trajectories_E.tolist()])
    policy = LocalLearner(cfg, learner)
    annotations = annotate(cfg, policy, None, None, batch)
    made = policy.update(batch, PolicyTargets(advantages.numpy(), annotations.old))
    return made["updates"], learner.updates


def test_a_target_divergence_ends_the_updates_of_a_step() -> None:
    assert updates(None) == (4, 4)
    assert updates(1e9) == (4, 4)
    made, schedule = updates(1e-4)
    assert made == 1  # the first is on-policy, the second sees what it did
    assert schedule == 4


def test_the_weight_of_the_value_loss_reaches_the_gradient() -> None:
    batch = Batch.of(samples(1))
    rows = [
        critic_of(value_model(), CriticConfig(loss_coef=coef, grad_clip=1e9)).update(batch, *targets(batch))
        for coef in (1.0, 0.1)
    ]
    assert rows[1]["grad_norm"] == pytest.approx(0.1 * rows[0]["grad_norm"], rel=1e-4)
    assert rows[1]["value_loss"] == pytest.approx(rows[0]["value_loss"], rel=1e-4)


@pytest.mark.parametrize(("every", "steps"), [(1, [1, 2, 3, 4]), (2, [2, 4]), (3, [3, 4])])
def test_rows_of_metrics_come_as_often_as_asked(
    every: int, steps: list[int], tmp_path: Path, small_model: Path
) -> None:
    data = tmp_path / "chats.jsonl"
    data.write_text('{"prompt": "a", "response": "b"}\n' * 4)
    given = [f"data.train_files={data}", f"actor_rollout_ref.model.path={small_model}", "sft.batch_size=1"]
    given += [f"trainer.default_local_dir={tmp_path / 'run'}", f"sft.log_freq={every}"]
    supervise(compose(None, given), Console(True))
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [r["step"] for r in rows if "sft/loss" in r] == steps


def test_at_most_so_many_tasks_are_taken(tmp_path: Path) -> None:
    data = tmp_path / "tasks.jsonl"
    data.write_text("".join(json.dumps({"id": i, "question": f"q{i}", "answer": "a"}) + "\n" for i in range(20)))

    def taken(*more: str) -> list[str]:
        given = [f"data.train_files={data}", "agent.agent_type=chat", "data.train_max_samples=5", *more]
        return [task.id for task in training_tasks(compose(None, given), lambda text: None)]

    assert len(taken()) == 5
    assert taken() == taken() != taken("trainer.seed=1")
    assert taken("data.shuffle=False") == ["0", "1", "2", "3", "4"]
    assert len(taken("data.train_max_samples=50")) == 20
    with pytest.raises(ValueError, match="train_max_samples=0 leaves nothing"):
        taken("data.train_max_samples=0")
