"""Rewards of the agent `gui`: the goal state, the steps that it took, and the form of its actions."""

from __future__ import annotations

from recollect.rewards.decorator import reward
from recollect.types import Trajectory


@reward(inline=True)
def gui_goal(trajectory: Trajectory) -> float:
    """1 when the screen ends in the task's goal state."""
    return float(trajectory.success is True)


@reward(inline=True)
def gui_steps(trajectory: Trajectory, waste: float = 0.1) -> float:
    """The goal, less ``waste`` for every action beyond the first; never below 0."""
    return max(0.0, gui_goal(trajectory) - waste * max(0, len(trajectory.actions) - 1))


@reward(inline=True)
def gui_format(trajectory: Trajectory) -> float:
    """The share of turns in which an action could be read."""
    if not trajectory.actions:
        return 0.0
    return sum(a.outcome != "malformed" for a in trajectory.actions) / len(trajectory.actions)
