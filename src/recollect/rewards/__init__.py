"""Rewards: plain functions of an answer, its task and its trajectory."""

# each registers its rewards
from recollect.rewards import code, domain, judge, math, memagent, memory, online, text, trajectory  # noqa: F401
from recollect.rewards.calculator import RewardCalculator
from recollect.rewards.names import find_reward, needs_answers
from recollect.rewards.registry import REWARDS, marks_of, reward

__all__ = ["REWARDS", "RewardCalculator", "find_reward", "marks_of", "needs_answers", "reward"]
