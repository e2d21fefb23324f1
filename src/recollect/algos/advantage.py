"""From rewards to advantages. Statistics are over trajectories, never over turns or rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def grpo(rewards_N: np.ndarray, groups_N: np.ndarray, use_std: bool = True) -> np.ndarray:
    """[N] (reward − group mean) / (group standard deviation + 1e-6); a group of one gets 0."""
    advantages = np.zeros(len(rewards_N), np.float64)
    for group in np.unique(groups_N):
        members = groups_N == group
        rewards = rewards_N[members].astype(np.float64)
        if len(rewards) < 2:
            continue
        centred = rewards - rewards.mean()
        advantages[members] = centred / (rewards.std(ddof=1) + 1e-6) if use_std else centred
    return advantages


ADVANTAGES: dict[str, Callable[..., np.ndarray]] = {"grpo": grpo}
