"""What the models say about a batch before its update: old and reference log-probabilities, divergence, values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from recollect.config import Config
from recollect.packing.batch import Batch
from recollect.packing.micro_batch import Packed
from recollect.training.learner.critic import Critic
from recollect.training.learner.learner import Learner
from recollect.training.learner.token_budget import Budget, run_with_budget


@dataclass
class Annotations:
    """Tensors over all trained tokens of a batch; None where nothing needs them."""

    old: Tensor | None = None  # log-probabilities before the update; None: the update is on-policy
    reference: Tensor | None = None  # log-probabilities of the reference policy
    divergence: Tensor | None = None  # exact divergence from the reference policy before the update
    values: Tensor | None = None  # the critic's values before the update


@dataclass
class Budgets:
    """Tokens per micro-batch of each kind of pass; a GPU that runs out of memory makes them smaller."""

    update: Budget
    old: Budget
    reference: Budget

    @staticmethod
    def of(cfg: Config, warn: Callable[[str], None] = lambda message: None) -> Budgets:
        """What the configuration asks for."""
        actor, rollout, ref = cfg.actor_rollout_ref.actor, cfg.actor_rollout_ref.rollout, cfg.actor_rollout_ref.ref
        most = actor.ppo_max_token_len_per_gpu if actor.use_dynamic_bsz else 1 << 40
        return Budgets(
            Budget(most, warn),
            Budget(rollout.log_prob_max_token_len_per_gpu, warn),
            Budget(ref.log_prob_max_token_len_per_gpu, warn),
        )


def updates_of(cfg: Config, batch: Batch) -> int:
    """How many updates the policy gets from a batch."""
    actor = cfg.actor_rollout_ref.actor
    return batch.updates(actor.ppo_mini_batch_size, actor.ppo_epochs)


def annotate(
    cfg: Config,
    learner: Learner,
    reference: Learner | None,
    critic: Critic | None,
    batch: Batch,
    budgets: Budgets | None = None,
) -> Annotations:
    """Compute what the estimate and the loss of this configuration need, and nothing else."""
    policy, algorithm, budgets = cfg.actor_rollout_ref, cfg.algorithm, budgets or Budgets.of(cfg)
    rows, share = range(len(batch.sequences)), policy.model.use_remove_padding

    def over(budget: Budget, most: int | None, work: Callable[[list[Packed]], Tensor]) -> Tensor:
        return run_with_budget(lambda n: batch.packs(rows, n, max_sequences=most, share=share), budget, work)

    made, entries, heat = Annotations(), batch.entries, batch.temperature
    penalty, most = algorithm.use_kl_in_reward, policy.rollout.log_prob_micro_batch_size_per_gpu
    exact = penalty and algorithm.kl_penalty == "full"
    moved_before = critic is not None and cfg.critic.model.share_actor  # its update comes before the policy's
    if cfg.data.offline_files:  # the old policy is whoever sampled, which the weights at hand need not be
        made.old = torch.from_numpy(batch.sampler_logprobs_E).to(learner.device)
    elif updates_of(cfg, batch) > 1 or (penalty and not exact) or moved_before:
        made.old = over(budgets.old, most, lambda packs: learner.logprobs(packs, entries, heat))
    if exact:
        assert reference is not None
        other = reference
        made.divergence = over(budgets.old, most, lambda packs: learner.divergence(packs, entries, other, heat))
    in_loss = policy.actor.use_kl_loss and policy.actor.kl_loss_type != "full"
    if reference is not None and (in_loss or (penalty and not exact)):
        still, most = reference, policy.ref.log_prob_micro_batch_size_per_gpu
        made.reference = over(budgets.reference, most, lambda packs: still.logprobs(packs, entries, heat))
    if critic is not None:
        made.values = critic.batch_values(batch)
    return made
