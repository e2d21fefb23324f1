"""Rewards: plain functions of an answer, its task and its trajectory."""

from recollect.rewards.text import boxed_em, em, f1, sub_em

REWARDS = {"boxed_em": boxed_em, "em": em, "f1": f1, "sub_em": sub_em}
