"""What the models say about a batch before its update: old and reference log-probabilities, divergence, values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recollect.config import Config
from recollect.packing.batch import Batch
from recollect.training.learner.learner import Learner, ReferencePolicy, ValueLearner


@dataclass
class Annotations:
    """Arrays over all trained tokens of a batch; None where nothing needs them."""

    old: np.ndarray | None = None  # log-probabilities before the update; None: the update is on-policy
    reference: np.ndarray | None = None  # log-probabilities of the reference policy
    divergence: np.ndarray | None = None  # exact divergence from the reference policy before the update
    values: np.ndarray | None = None  # the critic's values before the update


def updates_of(cfg: Config, batch: Batch) -> int:
    """How many updates the policy gets from a batch."""
    actor = cfg.actor_rollout_ref.actor
    return batch.updates(actor.ppo_mini_batch_size, actor.ppo_epochs)


def annotate(
    cfg: Config,
    learner: Learner,
    reference: ReferencePolicy | None,
    critic: ValueLearner | None,
    batch: Batch,
    as_sampled: bool = False,
) -> Annotations:
    """Ask for what the estimate and the loss of this configuration need, and nothing else.

    ``as_sampled``: the old log-probabilities are those that tokens were sampled with.
    """
    actor, algorithm, made = cfg.actor_rollout_ref.actor, cfg.algorithm, Annotations()
    penalty = algorithm.use_kl_in_reward
    exact = penalty and algorithm.kl_penalty == "full"
    moved_before = critic is not None and cfg.critic.model.share_actor  # its update comes before the policy's
    if as_sampled or algorithm.bypass_mode or cfg.data.offline_files:  # the old policy is whoever sampled
        made.old = batch.sampler_logprobs_E
    elif updates_of(cfg, batch) > 1 or (penalty and not exact) or moved_before:
        made.old = learner.logprobs(batch)
    if exact:
        assert reference is not None
        made.divergence = learner.divergence(batch, reference)
    in_loss = actor.use_kl_loss and actor.kl_loss_type != "full"
    if reference is not None and (in_loss or (penalty and not exact)):
        made.reference = reference.logprobs(batch)
    if critic is not None:
        made.values = critic.values(batch)
    return made
