"""The axis on which advantages are estimated: trained tokens, trajectory after trajectory, each in order of time.

Rows, padding and observations are gone from it, so that a trajectory of several sequences is one line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from recollect.algos.per_token import beside, ids_beside, trained

if TYPE_CHECKING:
    from torch import Tensor


class Timeline(NamedTuple):
    """The trained tokens (E), trajectory after trajectory, each in order of time.

    A member (M) is a trajectory in a group. With groups of roles a trajectory is a member of several, each with its
    whole score; otherwise there are as many members as trajectories (N).
    """

    rewards: Tensor  # [E]
    values: Tensor | None  # [E]
    baselines: Tensor | None  # [E]
    trajectory: Tensor  # [E] 0 … N − 1, ascending
    member: Tensor  # [E] 0 … M − 1
    group: Tensor  # [M] 0 … G − 1
    score: Tensor  # [M] sum of the trajectory's rewards
    total: Tensor  # [N] the same, for each trajectory once


def timeline(
    rewards: Tensor, values: Tensor | None, mask: Tensor, trajectories: Any, groups: Any, baselines: Any
) -> tuple[Timeline, Tensor]:
    """The time line, and the place of each of its tokens in the flattened input."""
    chosen = trained(mask, rewards)
    trajectory = ids_beside(trajectories, rewards)[chosen].unique(return_inverse=True)[1]
    order = trajectory.argsort(stable=True)
    places, trajectory = chosen.flatten().nonzero()[:, 0][order], trajectory[order]
    numbers = lambda x: None if x is None else beside(x, rewards).double().flatten()[places]
    reward = rewards.double().flatten()[places]
    found, group = ids_beside(groups, rewards).flatten()[places].unique(return_inverse=True)
    pairs, member = (trajectory * len(found) + group).unique(return_inverse=True)
    count = int(trajectory[-1]) + 1 if len(trajectory) else 0
    total = reward.new_zeros(count).index_add(0, trajectory, reward)
    owner, group = pairs // max(len(found), 1), pairs % max(len(found), 1)
    return Timeline(reward, numbers(values), numbers(baselines), trajectory, member, group, total[owner], total), places


def discounted(x: Tensor, trajectory: Tensor, factor: float) -> Tensor:
    """y_t = x_t + factor · y_{t+1} along each trajectory: sums over 1, 2, 4, … tokens, each made of two before."""
    longest = int(trajectory.bincount().max()) if len(trajectory) else 0
    span = 1
    while span < longest:
        later = x[span:].where(trajectory[:-span] == trajectory[span:], 0.0)
        x = x.clone()
        x[:-span] += factor**span * later
        span *= 2
    return x


def whitened(x: Tensor) -> Tensor:
    """Mean 0 and variance 1 over all trained tokens of the batch."""
    count = len(x)
    centred = x - x.sum() / (count + 1e-8)
    variance = centred.square().sum() / (count + 1e-8) * count / max(count - 1, 1)
    return centred * (variance + 1e-8).rsqrt()
