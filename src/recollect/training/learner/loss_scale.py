"""The divisor of losses that are summed over a sequence (`loss_agg_mode=seq-mean-token-sum-norm`)."""

from __future__ import annotations

from recollect.agents.window import longest_completion
from recollect.config import Config


def loss_scale(cfg: Config) -> float:
    """What the configuration says, or the length of the longest completion."""
    return cfg.actor_rollout_ref.actor.loss_scale_factor or longest_completion(cfg)
