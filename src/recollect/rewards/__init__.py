"""Rewards: plain functions of an answer, its task and its trajectory."""

# each registers its rewards
from recollect.rewards import conduct as trajectory
from recollect.rewards import domain, judge, memagent, online, text
from recollect.rewards import math_answers as math
from recollect.rewards import memory_qa as memory
from recollect.rewards import programs as code  # noqa: F401
from recollect.rewards.decorator import REWARDS, marks_of, reward
from recollect.rewards.reward_names import find_reward, needs_answers
from recollect.rewards.trajectory_total import RewardCalculator

__all__ = ["REWARDS", "RewardCalculator", "find_reward", "marks_of", "needs_answers", "reward"]
