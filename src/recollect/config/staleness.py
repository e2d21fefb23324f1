"""Sampling ahead of the weights (`trainer.max_staleness`): whether it goes on beside the updates, and how to say so."""

from __future__ import annotations

from recollect.config.nodes import learner_nodes
from recollect.config.roles import bindings
from recollect.config.schema import Config
from recollect.config.servers import served


def overlaps(cfg: Config) -> bool:
    """True when sampling goes on while the learner updates: one of the two computes in other processes.

    Models of one process share the plan of attention, so they compute in turn.
    """
    frozen = any(bound.kind == "frozen" for bound in bindings(cfg).values())
    frozen = frozen or (cfg.judge.url or "").startswith("frozen:")
    return learns_elsewhere(cfg) or (served(cfg.actor_rollout_ref.rollout) and not frozen)


def learns_elsewhere(cfg: Config) -> bool:
    """True when ranks learn: several, those of nodes, or one whose GPU is not the one that samples."""
    sampling = [] if served(cfg.actor_rollout_ref.rollout) else cfg.actor_rollout_ref.rollout.gpus
    another = bool(sampling) and sampling[0] != [*cfg.trainer.gpus, 0][0]
    return cfg.trainer.n_gpus_per_node > 1 or learner_nodes(cfg) > 0 or another


def goes_on(cfg: Config) -> bool:
    """True when the sampler is at work during updates, so that its memory is its own."""
    return cfg.trainer.max_staleness > 0 and overlaps(cfg)


def has_ratio(cfg: Config) -> bool:
    """Whether the policy loss compares with an old policy; a plain policy gradient does not."""
    return cfg.actor_rollout_ref.actor.policy_loss.loss_mode != "reinforce"


def schedule(cfg: Config) -> str:
    """A line about which weights sample what; empty for synchronous steps."""
    ahead = cfg.trainer.max_staleness
    if ahead == 0:
        return ""
    beside = "sampling goes on while the learner updates"
    in_turn = "sampling and updates take turns, as both compute in this process (ranks or vLLM servers would overlap)"
    weighed = f"weighed by algorithm.rollout_is={cfg.algorithm.rollout_is}"
    compared = "the loss compares with it (algorithm.bypass_mode=True)"
    return (
        f"trainer.max_staleness={ahead}: the batch of step k is sampled by version max(0, k - {ahead}), and "
        f"{compared if cfg.algorithm.bypass_mode else weighed}; {beside if overlaps(cfg) else in_turn}"
    )
