"""Rewards: plain functions of an answer, its task and its trajectory."""

from recollect.rewards.answers import math_reward_string_equal, qa_f1_reward
from recollect.rewards.text import boxed_em, em, f1, sub_em

REWARDS = {
    "boxed_em": boxed_em,
    "em": em,
    "f1": f1,
    "sub_em": sub_em,
    "qa_f1_reward": qa_f1_reward,
    "math_reward_string_equal": math_reward_string_equal,
}
