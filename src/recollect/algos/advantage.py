"""From per-token rewards to advantages and returns.

A trajectory's trained tokens are one time line, whatever its rows and observations. Statistics of a group are over its
trajectories, never over turns, rows or tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from recollect.algos.token_axis import Timeline, discounted, timeline, whitened
from recollect.registries import ESTIMATORS, estimator

if TYPE_CHECKING:
    from torch import Tensor

    AdvantagesAndReturns = tuple[Tensor, Tensor]  # advantages, returns


class Estimator(Protocol):
    """All estimators are called alike; each ignores the options that it has no use for."""

    def __call__(
        self,
        rewards: Tensor,
        values: Tensor | None,
        mask: Tensor,
        trajectories: Any,
        groups: Any,
        *,
        gamma: float = 1.0,
        lam: float = 1.0,
        use_std: bool = True,
        baselines: Any = None,
    ) -> AdvantagesAndReturns: ...


def over_tokens(core: Callable[..., AdvantagesAndReturns]) -> Estimator:
    """An estimator of tokens in either shape from one on the time line; what is not trained gets 0."""

    def estimate(
        rewards: Tensor,
        values: Tensor | None,
        mask: Tensor,
        trajectories: Any,
        groups: Any,
        *,
        gamma: float = 1.0,
        lam: float = 1.0,
        use_std: bool = True,
        baselines: Any = None,
    ) -> AdvantagesAndReturns:
        import torch

        def back(found: Tensor) -> Tensor:
            dtype = rewards.dtype if rewards.is_floating_point() else torch.get_default_dtype()
            out = torch.zeros(rewards.numel(), dtype=dtype, device=rewards.device)
            return out.index_copy(0, places, found.to(dtype)).view(rewards.shape)

        with torch.no_grad():
            line, places = timeline(rewards, values, mask, trajectories, groups, baselines)
            advantages, returns = core(line, gamma=gamma, lam=lam, use_std=use_std)
            return back(advantages), back(returns)

    estimate.__name__, estimate.__doc__, estimate.__module__ = core.__name__, core.__doc__, core.__module__
    return estimate


def _sums(x: Tensor, group: Tensor) -> Tensor:
    """[M] the sum over the group of each member."""
    sums = x.new_zeros(int(group.max()) + 1 if len(group) else 0).index_add(0, group, x)
    return sums[group]


def _over_baseline(line: Timeline, weight: Tensor) -> Tensor:
    """[M] score − weighted mean of the group; exactly 0 where all of a group score the same, as in a group of one."""
    mean = _sums(weight * line.score, line.group) / _sums(weight, line.group)
    extreme = line.score.new_zeros(int(line.group.max()) + 1 if len(line.group) else 0)
    low, high = (
        extreme.scatter_reduce(0, line.group, line.score, how, include_self=False)[line.group]
        for how in ("amin", "amax")
    )
    return (line.score - mean).where(low != high, 0.0)


def _over_mean(line: Timeline) -> Tensor:
    return _over_baseline(line, line.score.new_ones(line.score.shape))


def _of_members(advantage_M: Tensor, line: Timeline) -> AdvantagesAndReturns:
    """Every token has its member's advantage. Without a critic nothing reads the returns: they are the same."""
    advantages = advantage_M[line.member]
    return advantages, advantages


@estimator(needs_critic=True)
@over_tokens
def gae(line: Timeline, *, gamma: float, lam: float, **_: Any) -> AdvantagesAndReturns:
    """Generalised advantage estimation with a critic; advantages whitened, returns for the critic."""
    if line.values is None:
        raise ValueError("the estimator gae needs values: it cannot do without a critic")
    goes_on = line.trajectory == line.trajectory.roll(-1)
    goes_on[-1:] = False
    following = line.values.roll(-1).where(goes_on, 0.0)
    errors = line.rewards + gamma * following - line.values
    advantages = discounted(errors, line.trajectory, gamma * lam)
    return whitened(advantages), advantages + line.values


@estimator(compares=True)
@over_tokens
def grpo(line: Timeline, *, use_std: bool, **_: Any) -> AdvantagesAndReturns:
    """(score − group mean) / (group standard deviation + 1e-6), or without the division."""
    centred = _over_mean(line)
    if use_std:
        size = _sums(centred.new_ones(centred.shape), line.group)
        deviation = (_sums(centred.square(), line.group) / (size - 1).clamp(min=1)).sqrt()
        centred = centred / (deviation + 1e-6)
    return _of_members(centred, line)


@estimator(compares=True)
@over_tokens
def rloo(line: Timeline, **_: Any) -> AdvantagesAndReturns:
    """Score − mean score of the group's other members."""
    size = _sums(line.score.new_ones(line.score.shape), line.group)
    return _of_members(size / (size - 1).clamp(min=1) * _over_mean(line), line)


@estimator(needs_greedy=True)
@over_tokens
def remax(line: Timeline, *, gamma: float, **_: Any) -> AdvantagesAndReturns:
    """Reward to go − reward of a greedy attempt at the same task."""
    if line.baselines is None:
        raise ValueError("the estimator remax needs baselines: the reward of a greedy attempt beside each trajectory")
    returns = discounted(line.rewards, line.trajectory, gamma)
    return returns - line.baselines, returns


@estimator()
@over_tokens
def reinforce_plus_plus(line: Timeline, *, gamma: float, **_: Any) -> AdvantagesAndReturns:
    """Discounted reward to go, whitened."""
    returns = discounted(line.rewards, line.trajectory, gamma)
    return whitened(returns), returns


@estimator(compares=True)
@over_tokens
def reinforce_plus_plus_baseline(line: Timeline, **_: Any) -> AdvantagesAndReturns:
    """Score − group mean, whitened over tokens."""
    advantages = whitened(_over_mean(line)[line.member])
    return advantages, advantages


@estimator(compares=True)
@over_tokens
def opo(line: Timeline, **_: Any) -> AdvantagesAndReturns:
    """Score − group mean in which a trajectory weighs as much as it has trained tokens."""
    length = line.member.bincount(minlength=len(line.score)).double()
    return _of_members(_over_baseline(line, length), line)


@estimator(compares=True)
@over_tokens
def gpg(line: Timeline, **_: Any) -> AdvantagesAndReturns:
    """Score − group mean, scaled up by the share of trajectories that score anything."""
    scale = len(line.total) / max(int(line.total.count_nonzero()), 1)
    return _of_members(scale * _over_mean(line), line)


ADVANTAGES: dict[str, Estimator] = {name: spec.function for name, spec in ESTIMATORS.items()}
