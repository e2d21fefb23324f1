"""The estimator and the policy loss that settings name: built in, or ``module:function``."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

from recollect.config import Config
from recollect.config.rules import warmup_problem
from recollect.registries import ESTIMATORS, LOSSES, EstimatorSpec
from recollect.runtime.plugins import find
from recollect.types import BadInput

ESTIMATOR, LOSS = "algorithm.adv_estimator", "actor_rollout_ref.actor.policy_loss.loss_mode"
ESTIMATES = "rewards, values, mask, trajectories, groups, *, gamma, lam, use_std, baselines"
WEIGHS = "logp, old, advantages, mask, *, clip_ratio_low, clip_ratio_high, clip_ratio_c, sequences"


def chosen_estimator(name: str) -> EstimatorSpec:
    """The estimator behind ``algorithm.adv_estimator``; a function without a decorator asks for nothing."""
    function = find(name, {known: spec.function for known, spec in ESTIMATORS.items()}, ESTIMATOR)
    return ESTIMATORS.of(name) or EstimatorSpec(name, function)


def chosen_loss(name: str) -> Callable[..., Any]:
    """The loss behind ``policy_loss.loss_mode``."""
    return find(name, LOSSES, LOSS)


def check_algorithm(cfg: Config) -> None:
    """Refuse an estimator or a loss that is not there, or that cannot be called like the built-in ones."""
    estimator, loss = cfg.algorithm.adv_estimator, cfg.actor_rollout_ref.actor.policy_loss.loss_mode
    spec = chosen_estimator(estimator)
    _check_call(ESTIMATOR, estimator, spec.function, ESTIMATES)
    for problem in () if spec.needs_critic else warmup_problem(cfg):
        raise BadInput(problem)
    _check_call(LOSS, loss, chosen_loss(loss), WEIGHS)


def _check_call(key: str, name: str, function: Callable[..., Any], arguments: str) -> None:
    places, _, options = arguments.partition(", *, ")
    try:
        signature(function).bind(*places.split(", "), **dict.fromkeys(options.split(", ")))
    except TypeError as error:
        raise BadInput(f"{key}={name} must take ({arguments}): {error}") from None
    except ValueError:
        return  # a function that does not show its arguments
