"""Rewards: plain functions of an answer, its task and its trajectory."""

from recollect.config.reward_terms import needs_answers
from recollect.registries import REWARDS
from recollect.rewards import (  # noqa: F401  each adds its rewards to the registry
    conduct,
    domain_outcome,
    gui_rewards,
    judge,
    locomo_f1,
    math_answers,
    memagent,
    memory_qa,
    online,
    programs,
    text,
)
from recollect.rewards.decorator import marks_of, reward
from recollect.rewards.reward_names import find_reward
from recollect.rewards.trajectory_total import RewardCalculator

__all__ = ["REWARDS", "RewardCalculator", "find_reward", "marks_of", "needs_answers", "reward"]
