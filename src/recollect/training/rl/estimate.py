"""From scores to an advantage for every trained token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from recollect.algos.chosen import chosen_estimator
from recollect.algos.control import KLController
from recollect.algos.kl import KL
from recollect.config import Algorithm
from recollect.packing.batch import Batch
from recollect.training.rl.annotate import Annotations
from recollect.types import Score, Trajectory


class Estimate(NamedTuple):
    """What the update needs, over all trained tokens, and metrics about it."""

    advantages: np.ndarray
    returns: np.ndarray
    metrics: dict[str, float]


def units(batch: Batch, group_by: str) -> tuple[np.ndarray, np.ndarray]:
    """[E] who earns a reward, and whom it is compared with.

    A trajectory earns as one, but the turns of each of several questions by themselves. They are compared within the
    task; with ``role`` within a role of the task, with ``question`` within one question of it.
    """
    asked = int(batch.questions_E.max(initial=0)) + 1
    earner = batch.trajectories_E * asked + batch.questions_E
    if group_by == "task":
        return earner, batch.groups_E
    count = max(1, len(batch.roles))
    owner, group = earner * count + batch.roles_E, batch.groups_E * count + batch.roles_E
    return owner, group if group_by == "role" else group * asked + batch.questions_E


def last_tokens(units_E: np.ndarray) -> np.ndarray:
    """The place of each unit's last trained token, in the order of the units' ids."""
    _, from_the_end = np.unique(units_E[::-1], return_index=True)
    return len(units_E) - 1 - from_the_end


def token_rewards(batch: Batch, units_E: np.ndarray, trajectories: Sequence[Trajectory], by_role: bool) -> np.ndarray:
    """[E] every unit's score on its last trained token, 0 elsewhere."""
    rewards = np.zeros(batch.entries)
    for place in last_tokens(units_E):
        score = trajectories[batch.trajectories_E[place]].score
        assert score is not None
        role = batch.roles[batch.roles_E[place]] if by_role else ""
        rewards[place] = earned(score, role, int(batch.questions_E[place]))
    return rewards


def earned(score: Score, role: str, question: int) -> float:
    """What the turns of a question, or a role, earned: their own reward where they have one, else the whole."""
    if question < len(score.questions):
        return score.questions[question]
    return score.roles.get(role, score.total) if role else score.total


def estimate(
    cfg: Algorithm,
    batch: Batch,
    trajectories: Sequence[Trajectory],
    annotations: Annotations,
    control: KLController,
    greedy: Sequence[Score] | None = None,
) -> Estimate:
    """Advantages and returns of a batch. ``greedy`` holds the score of each group's greedy rollout (remax)."""
    units_E, groups_E = units(batch, cfg.group_by)
    rewards = torch.from_numpy(token_rewards(batch, units_E, trajectories, cfg.group_by != "task"))
    metrics: dict[str, float] = {}
    if cfg.use_kl_in_reward:
        divergence = _divergence(cfg, annotations).double()
        rewards = rewards - control.coef * divergence
        mean = _mean_over(divergence, batch.trajectories_E)
        metrics |= {"actor/reward_kl": mean, "actor/kl_coef": control.coef}
        control.update(mean, len(np.unique(batch.trajectories_E)))
    baselines = None
    if greedy is not None:
        roles = [batch.roles[r] for r in batch.roles_E.tolist()] if cfg.group_by != "task" else [""] * batch.entries
        places = zip(batch.groups_E.tolist(), roles, batch.questions_E.tolist(), strict=True)
        found = [earned(greedy[g], role, question) for g, role, question in places]
        baselines = torch.tensor(found, dtype=torch.float64)
    ids = torch.from_numpy(units_E), torch.from_numpy(groups_E)
    values = None if annotations.values is None else torch.from_numpy(annotations.values).double()
    advantages, returns = chosen_estimator(cfg.adv_estimator).function(
        rewards,
        values,
        torch.ones(batch.entries, dtype=torch.float64),
        *ids,
        gamma=cfg.gamma,
        lam=cfg.lam,
        use_std=cfg.norm_adv_by_std_in_grpo and cfg.grpo_use_adv,
        baselines=baselines,
    )
    if values is not None:
        metrics |= {"critic/values_mean": float(values.mean()), "critic/returns_mean": float(returns.mean())}
    count = int(units_E.max(initial=0)) + 1
    sizes = np.unique(np.unique(groups_E * count + units_E) // count, return_counts=True)[1]
    metrics["rollout/groups_of_one"] = float((sizes == 1).sum())
    metrics |= {"advantage/mean": float(advantages.mean()), "advantage/max": float(advantages.abs().max())}
    return Estimate(advantages.float().numpy(), returns.float().numpy(), metrics)


def _divergence(cfg: Algorithm, annotations: Annotations) -> Tensor:
    if cfg.kl_penalty == "full":
        assert annotations.divergence is not None
        return torch.from_numpy(annotations.divergence)
    assert annotations.old is not None
    assert annotations.reference is not None
    return KL[cfg.kl_penalty](torch.from_numpy(annotations.old), torch.from_numpy(annotations.reference))


def _mean_over(x_E: Tensor, ids_E: np.ndarray) -> float:
    """The mean over ids of each one's mean."""
    _, index, counts = np.unique(ids_E, return_inverse=True, return_counts=True)
    sums = np.bincount(index, weights=x_E.numpy())
    return float((sums / counts).mean())
