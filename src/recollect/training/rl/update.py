"""The policy update of one step: mini-batches, the loss of each, and what happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from recollect.agents.window import longest_completion
from recollect.algos.aggregation import token_weights
from recollect.algos.chosen import chosen_loss
from recollect.algos.importance import importance_weights
from recollect.algos.kl import KL
from recollect.config import Actor, Config
from recollect.packing.batch import Batch
from recollect.packing.micro_batch import Packed
from recollect.training.learner.learner import Learner
from recollect.training.learner.token_budget import Budget, run_with_budget
from recollect.training.rl.annotate import Annotations, Budgets

FAR = 1.5  # × target_kl: the divergence at which the updates of a step end
STATISTICS = (
    *("policy_loss", "kl", "entropy", "clip_fraction", "logprob_drift"),
    *("policy_kl", "importance", "importance_capped"),
)


@dataclass
class Terms:
    """What the loss of each trained token is made of; tensors run over all trained tokens of the batch."""

    weight: Tensor
    advantage: Tensor
    sampler: Tensor
    sequence: Tensor
    old: Tensor | None  # None: the update is on-policy, the old policy is the current one
    reference: Tensor | None


def policy_update(
    cfg: Config,
    learner: Learner,
    batch: Batch,
    advantages: Tensor,
    notes: Annotations | None = None,
    reference: Learner | None = None,
    seed: Sequence[int] = (0,),
    budgets: Budgets | None = None,
) -> dict[str, float]:
    """All mini-batches and epochs of one step; returns metrics averaged over the updates."""
    actor, notes = cfg.actor_rollout_ref.actor, notes or Annotations()
    budget = (budgets or Budgets.of(cfg)).update
    device = learner.device
    advantage = advantages.float().to(device)
    sampler = torch.from_numpy(batch.sampler_logprobs_E).to(device)
    sequence = torch.from_numpy(batch.sequences_E).to(device)
    only_advantage = not actor.use_kl_loss and actor.entropy_coeff == 0
    scale = actor.loss_scale_factor or longest_completion(cfg)
    moved = np.unique(batch.sequences_E[advantages.numpy() != 0])
    rows: list[dict[str, float]] = []
    far = False
    for members, entries in batch.mini_batches(actor.ppo_mini_batch_size, actor.ppo_epochs, seed, actor.shuffle):
        weight = np.zeros(batch.entries, np.float32)
        of_trajectory, of_sequence = batch.trajectories_E[entries], batch.sequences_E[entries]
        weight[entries] = token_weights(actor.loss_agg_mode, of_trajectory, of_sequence, scale)
        terms = Terms(torch.from_numpy(weight).to(device), advantage, sampler, sequence, notes.old, notes.reference)
        if only_advantage:  # sequences without advantage have no gradient: they need not be computed
            members = np.intersect1d(members, moved).tolist()
        made = _one_update(cfg, learner, batch, members, terms, reference, budget) if members and not far else None
        far = far or bool(members and made is None)
        if made is None:
            learner.skip()
        else:
            rows.append(made)
    keys = rows[0].keys() if rows else ()
    return {k: float(np.mean([r[k] for r in rows])) for k in keys} | {"updates": float(len(rows))}


def _one_update(
    cfg: Config,
    learner: Learner,
    batch: Batch,
    members: list[int],
    terms: Terms,
    reference: Learner | None,
    budget: Budget,
) -> dict[str, float] | None:
    """One update and what it found; None where the policy has gone too far from the one that sampled."""
    actor, share = cfg.actor_rollout_ref.actor, cfg.actor_rollout_ref.model.use_remove_padding
    exact = reference if actor.use_kl_loss and actor.kl_loss_type == "full" else None

    def packs(tokens: int) -> list[Packed]:
        return batch.packs(members, tokens, max_sequences=actor.ppo_micro_batch_size_per_gpu, share=share)

    def work(packs: list[Packed]) -> dict[str, float]:
        sums = {name: torch.zeros((), device=learner.device) for name in (*STATISTICS, "share")}
        learner.backward(packs, lambda *found: _loss(cfg, terms, sums, *found), batch.temperature, exact)
        part = float(sums.pop("share"))  # of the mini-batch that was computed: statistics are means over that
        names = [n for n in STATISTICS if cfg.algorithm.rollout_is is not None or not n.startswith("importance")]
        names = [n for n in names if actor.target_kl is not None or n != "policy_kl"]
        means = {k: float(sums[k]) / (1.0 if k in ("policy_loss", "kl") else part) for k in names}
        return means | {"tokens_computed": float(sum(len(p.tokens) for p in packs))}

    made = run_with_budget(packs, budget, work, learner.optimizer.zero_grad)
    if actor.target_kl is not None and made["policy_kl"] > FAR * actor.target_kl:
        learner.optimizer.zero_grad()
        return None
    return made | learner.step()


def _loss(
    cfg: Config,
    terms: Terms,
    sums: dict[str, Tensor],
    packed: Packed,
    logp: Tensor,
    entropy: Tensor,
    divergence: Tensor | None = None,
) -> Tensor:
    """The loss of one micro-batch; what is worth knowing is added to ``sums``."""
    actor, algorithm, e = cfg.actor_rollout_ref.actor, cfg.algorithm, packed.entry
    weight, sampler, sequence = terms.weight[e], terms.sampler[e], terms.sequence[e]
    old, mask = logp.detach() if terms.old is None else terms.old[e], torch.ones_like(logp)
    loss = chosen_loss(actor.policy_loss.loss_mode)
    policy, clipped = loss(logp, old, terms.advantage[e], mask, sequences=sequence, **clip_options(actor))
    if algorithm.rollout_is is not None:
        cap = algorithm.rollout_is_threshold
        trust, drift = importance_weights(old, sampler, mask, algorithm.rollout_is, cap, sequence)
        policy = policy * trust
        sums["importance"] += (weight * trust).sum()
        sums["importance_capped"] += drift["capped"] * weight.sum()
    total = (weight * policy).sum()
    if actor.entropy_coeff:
        total = total - actor.entropy_coeff * (weight * entropy).sum()
    if actor.use_kl_loss:
        if divergence is None:
            assert terms.reference is not None
            divergence = KL[actor.kl_loss_type](logp, terms.reference[e])
        distance = (weight * divergence).sum()
        total = total + actor.kl_loss_coef * distance
        sums["kl"] += distance.detach()
    with torch.no_grad():
        sums["policy_loss"] += (weight * policy).sum()
        sums["entropy"] += (weight * entropy).sum()
        sums["clip_fraction"] += (weight * clipped).sum()
        sums["policy_kl"] += (weight * KL["low_var_kl"](old, logp)).sum()
        sums["logprob_drift"] += (weight * (logp - sampler).abs()).sum()
        sums["share"] += weight.sum()
    return total


def clip_options(actor: Actor) -> dict[str, float]:
    """The clip range of a policy loss; clip_ratio sets both sides unless they are given."""
    low, high = actor.clip_ratio_low, actor.clip_ratio_high
    return {
        "clip_ratio_low": actor.clip_ratio if low is None else low,
        "clip_ratio_high": actor.clip_ratio if high is None else high,
        "clip_ratio_c": actor.clip_ratio_c,
    }
