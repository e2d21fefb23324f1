"""What the driver tells its ranks: what to make, and which object a call is about."""

from __future__ import annotations

import copy
from dataclasses import dataclass

from recollect.config import Config, Optim
from recollect.training.learner.token_budget import FLOOR


@dataclass(frozen=True)
class RankSettings:
    """What a rank makes its learner from."""

    cfg: Config
    optim: Optim
    updates: int  # the length of the learning rate's schedule
    path: str = ""  # the folder of the model
    halvings: int = 0  # how often the memory of a rank has run out: every token budget is halved so many times


@dataclass(frozen=True)
class Handle:
    """An object of the ranks, by its number."""

    number: int


def halved(cfg: Config, times: int) -> Config:
    """The configuration with smaller micro-batches."""
    if not times:
        return cfg
    cfg = copy.deepcopy(cfg)
    policy = cfg.actor_rollout_ref
    fewer = lambda tokens: max(FLOOR, tokens >> times)
    policy.actor.ppo_max_token_len_per_gpu = fewer(policy.actor.ppo_max_token_len_per_gpu)
    policy.rollout.log_prob_max_token_len_per_gpu = fewer(policy.rollout.log_prob_max_token_len_per_gpu)
    policy.ref.log_prob_max_token_len_per_gpu = fewer(policy.ref.log_prob_max_token_len_per_gpu)
    cfg.critic.ppo_max_token_len_per_gpu = fewer(cfg.critic.ppo_max_token_len_per_gpu)
    return cfg
