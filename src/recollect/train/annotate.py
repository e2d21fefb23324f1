"""What the models say about a batch before its update: old and reference log-probabilities, divergence, values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from recollect.algos.batch import Batch
from recollect.config import Config
from recollect.train.critic import Critic
from recollect.train.learner import Learner


@dataclass
class Annotations:
    """Tensors over all trained tokens of a batch; None where nothing needs them."""

    old: Tensor | None = None  # log-probabilities before the update; None: the update is on-policy
    reference: Tensor | None = None  # log-probabilities of the reference policy
    divergence: Tensor | None = None  # exact divergence from the reference policy before the update
    values: Tensor | None = None  # the critic's values before the update


def updates_of(cfg: Config, groups: int) -> int:
    """How many updates one batch of so many groups gets."""
    actor = cfg.actor_rollout_ref.actor
    size = actor.ppo_mini_batch_size or max(1, groups)
    return actor.ppo_epochs * -(-groups // size)


def annotate(
    cfg: Config, learner: Learner, reference: Learner | None, critic: Critic | None, batch: Batch
) -> Annotations:
    """Compute what the estimate and the loss of this configuration need, and nothing else."""
    policy, algorithm = cfg.actor_rollout_ref, cfg.algorithm
    share = policy.model.use_remove_padding
    rows = range(len(batch.sequences))
    made = Annotations()
    penalty = algorithm.use_kl_in_reward
    if updates_of(cfg, len(np.unique(batch.groups))) > 1 or penalty:
        limits = policy.rollout.log_prob_max_token_len_per_gpu, policy.rollout.log_prob_micro_batch_size_per_gpu
        packs = lambda budget: batch.packs(rows, budget, max_sequences=limits[1], share=share)
        exact = reference if penalty and algorithm.kl_penalty == "full" else None
        made.old, made.divergence = learner.annotate(packs, limits[0], batch.entries, batch.temperature, exact)
    loss_reads = policy.actor.use_kl_loss and policy.actor.kl_loss_type != "full"
    if reference is not None and (loss_reads or (penalty and algorithm.kl_penalty != "full")):
        limits = policy.ref.log_prob_max_token_len_per_gpu, policy.ref.log_prob_micro_batch_size_per_gpu
        packs = lambda budget: batch.packs(rows, budget, max_sequences=limits[1], share=share)
        made.reference, _ = reference.annotate(packs, limits[0], batch.entries, batch.temperature)
    if critic is not None:
        made.values = critic.values(batch)
    return made
