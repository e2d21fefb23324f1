"""The reward of an attempt whose outcome its domain has checked."""

from __future__ import annotations

from recollect.rewards.decorator import reward
from recollect.types import Trajectory


@reward(inline=True)
def success(trajectory: Trajectory) -> float:
    """1 when the domain's own check passed: the accepted answer, the state of the database, the tests."""
    return float(trajectory.success is True)
