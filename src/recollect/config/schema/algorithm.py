"""Advantages and divergences."""

from __future__ import annotations

from dataclasses import dataclass, field

from recollect.config.schema.bounds import choice, not_negative, positive, share
from recollect.registries import ESTIMATORS, KL


@dataclass
class KLControl:
    """The weight of the divergence in the reward."""

    type: str = choice("fixed", "adaptive")  # adaptive: it moves so that the divergence nears target_kl
    kl_coef: float = not_negative(0.001)  # weight, or first weight
    target_kl: float = positive(0.1)  # adaptive: the divergence to hold
    horizon: float = positive(10000.0)  # adaptive: trajectories over which the weight follows


@dataclass
class FilterGroups:
    """Dynamic sampling: groups without signal are replaced before the update."""

    enable: bool = False  # drop groups whose trajectories all score the same, and sample other tasks instead
    metric: str = "reward"  # what must differ within a group: reward (all of it), or a named part of the score
    max_num_gen_batches: int = positive(10)  # most batches of tasks sampled for one step


@dataclass
class Algorithm:
    """From rewards to advantages."""

    adv_estimator: str = choice(of=ESTIMATORS, default="grpo", own=True)  # how rewards become advantages
    gamma: float = share(1.0)  # discount per trained token (gae, remax, reinforce_plus_plus)
    lam: float = share(1.0)  # GAE's lambda
    # who is compared: all of a task, or within it each role, or each question, by itself
    group_by: str = choice("task", "role", "question")
    use_kl_in_reward: bool = False  # take a divergence from the reference policy off each token's reward
    kl_penalty: str = choice(of=KL, default="kl")  # its estimator; full: exact over the vocabulary
    kl_ctrl: KLControl = field(default_factory=KLControl)
    filter_groups: FilterGroups = field(default_factory=FilterGroups)
    # weigh the loss by learner/sampler probability of each token or sequence; null: do not
    rollout_is: str | None = choice("token", "sequence", "null", default=None)
    rollout_is_threshold: float = positive(2.0, infinite=True)  # cap of that weight
    # ratio and clip compare with the log-probabilities of sampling; null: with max_staleness, unless rollout_is is set
    bypass_mode: bool | None = None
    norm_adv_by_std_in_grpo: bool = True  # divide by the group's standard deviation
    grpo_use_adv: bool = True  # MemAgent's name for the same switch: False leaves the deviation out
