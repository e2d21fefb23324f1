"""One rank, two and four: the gradient of every parameter, whole steps, and checkpoints that go between them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from recollect.config import Config
from recollect.models.shared_weights import whole
from recollect.training.learner.learner import PolicyTargets
from recollect.training.learner.trained_model import TrainedModel
from recollect.training.rl.annotate import annotate
from recollect.training.rl.estimate import estimate
from recollect.training.rl.step import kl_control
from recollect.types import Score, Trajectory
from tests.dist.forked import forking
from tests.training import test_ranks
from tests.training.test_ranks import NEAR, Trained, batch, config, moments, numbers, restored, same_numbers, weights

folders = test_ranks.folders

ADAPTIVE = [
    *("algorithm.use_kl_in_reward=true", "algorithm.kl_ctrl.type=adaptive", "algorithm.kl_ctrl.kl_coef=0.5"),
    *("algorithm.kl_ctrl.horizon=40", "algorithm.kl_ctrl.target_kl=0.001"),
]
LORA = ["actor_rollout_ref.model.lora_rank=4"]
ROUNDING = 2**-22  # two units in the last place of losses, which are about 1
WHOLE = {
    "critic": ("Qwen3", [*ADAPTIVE, "algorithm.adv_estimator=gae"]),
    "adapter": ("Qwen3", [*ADAPTIVE, *LORA, "algorithm.kl_penalty=full", "algorithm.adv_estimator=gae"]),
    "untied": ("Qwen2", [*ADAPTIVE, "actor_rollout_ref.actor.use_kl_loss=true", "algorithm.rollout_is=sequence"]),
    "replicas": ("Qwen2", [*ADAPTIVE, "actor_rollout_ref.actor.fsdp_config.fsdp_size=1"]),
}


class Steps(Trained):
    """Whole steps: the divergence in the reward, its weight, advantages, critic and policy."""

    def __init__(self, cfg: Config, path: Path) -> None:
        super().__init__(cfg, path)
        self.reference = self.reference or self.learner.keep_reference()
        self.control = kl_control(cfg.algorithm.kl_ctrl, None)

    def step(self, number: int) -> None:
        made, rng = batch(number), np.random.default_rng(number)
        count = int(made.trajectories_E.max()) + 1
        attempts = [Trajectory("t", i, score=Score(float(rng.normal()))) for i in range(count)]
        found = annotate(self.cfg, self.learner, self.reference, self.critic, made)
        guess = estimate(self.cfg.algorithm, made, attempts, found, self.control)
        if self.critic is not None:
            assert found.values is not None
            self.said.append(numbers(self.critic.update(made, guess.returns, found.values, (0, number), place=number)))
        targets = PolicyTargets(guess.advantages, found.old, found.reference)
        self.said.append(numbers(self.learner.update(made, targets, self.reference, (0, number), number)))
        self.said += [guess.advantages, guess.returns, np.array([self.control.coef])]


def noting(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let every update write the gradients that it applies, put together, in order; ranks are forked after this."""
    plain, seen = TrainedModel.step, [0]

    def step(self: TrainedModel) -> Any:
        many = torch.distributed.is_initialized()
        found = {name: whole(p.grad) for name, p in self.model.named_parameters() if p.grad is not None}
        if not many or torch.distributed.get_rank() == 0:
            place = folder / ("ranks" if many else "alone")
            place.mkdir(exist_ok=True)
            save_file({name: grad.contiguous() for name, grad in found.items()}, place / f"{seen[0]:03d}.safetensors")
        seen[0] += 1
        return plain(self)

    monkeypatch.setattr(TrainedModel, "step", step)


def gradients(folder: Path) -> Iterator[dict[str, torch.Tensor]]:
    """Of every update, in order."""
    for path in sorted(folder.iterdir()):
        yield load_file(path)


def distance(mine: torch.Tensor, theirs: torch.Tensor) -> float:
    """How far a gradient is off, relative to its norm; nothing where float32 rounds a sum that nearly cancels out."""
    off = (mine - theirs).norm()
    return float(off / theirs.norm()) if off > ROUNDING else 0.0


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=() if name == "adapter" else (pytest.mark.slow,)) for name in WHOLE]
)
def test_every_gradient_is_that_of_one_process(
    case: str, ranks: int, folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noting(monkeypatch, tmp_path)
    forking(monkeypatch)
    kind, settings = WHOLE[case]
    runs = [Steps(config(folders[kind], n, *settings), folders[kind]) for n in (1, ranks)]
    for run in runs:
        for number in range(3):
            run.step(number)
    same_numbers(*runs)
    assert runs[0].control.coef != 0.5  # it was adapted
    alone, together = (list(gradients(tmp_path / name)) for name in ("alone", "ranks"))
    assert len(alone) == len(together) == 3 * (1 + (runs[0].critic is not None))
    for one, other in zip(alone, together, strict=True):
        assert one.keys() == other.keys()
        assert len(one) > 10
        far = {name: distance(other[name], grad) for name, grad in one.items()}
        assert max(far.values()) < 1e-5, max(far, key=lambda name: far[name])
    saved = [weights(run.save(tmp_path / name)) for name, run in zip(("one", "many"), runs, strict=True)]
    runs[1].learner.close()
    assert saved[0].keys() == saved[1].keys()
    for name, tensor in saved[0].items():
        torch.testing.assert_close(saved[1][name], tensor, **NEAR)


@pytest.mark.slow
@pytest.mark.parametrize("case", WHOLE)
def test_a_checkpoint_of_two_ranks_goes_through_one_and_four(
    case: str, folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2 → 1 → 4 → 2: weights and moments to the bit, of policy and critic; and the next step is the same."""
    forking(monkeypatch)
    kind, settings = WHOLE[case]
    run = Trained(config(folders[kind], 2, *settings), folders[kind])
    run.step(0)
    saved = first = run.save(tmp_path / "first")
    run.learner.close()
    said = []
    for ranks in (1, 4, 2):
        run = restored(config(folders[kind], ranks, *settings), folders[kind], saved)
        saved = run.save(tmp_path / f"by-{ranks}-ranks")
        torch.testing.assert_close(weights(saved), weights(first), rtol=0, atol=0)
        run.step(1)
        said.append(run)
        run.learner.close()
    torch.testing.assert_close(moments(saved), moments(first), rtol=0, atol=0)
    if run.critic is not None:
        torch.testing.assert_close(moments(saved / "critic"), moments(first / "critic"), rtol=0, atol=0)
    for other in said[1:]:
        same_numbers(other, said[0])
