"""One policy update from a batch: old and reference log-probabilities, advantages, loss, steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recollect.algos.aggregation import token_weights
from recollect.algos.batch import Batch
from recollect.algos.kl import KL
from recollect.algos.loss import ppo
from recollect.algos.packed import Packed
from recollect.config import Actor
from recollect.train.learner import Learner


@dataclass
class Terms:
    """What the loss of each trained token is made of; tensors run over all trained tokens of the batch."""

    weight: Tensor
    advantage: Tensor
    old: Tensor | None  # None: the update is on-policy, the old policy is the current one
    reference: Tensor | None
    sampler: Tensor


def policy_update(
    learner: Learner,
    reference: Learner | None,
    batch: Batch,
    advantages_N: np.ndarray,
    cfg: Actor,
    reference_budget: int,
    seed: Sequence[int] = (0,),
) -> dict[str, float]:
    """All mini-batches and epochs of one step; returns metrics averaged over the updates."""
    budget, device = cfg.ppo_max_token_len_per_gpu, learner.device
    on_device = lambda a: torch.from_numpy(np.ascontiguousarray(a)).float().to(device)
    advantage = on_device(advantages_N[batch.trajectories_E])
    sampler = on_device(batch.sampler_logprobs_E)
    everything = list(range(len(batch.sequences)))
    groups = np.unique(batch.groups)
    size = cfg.ppo_mini_batch_size or len(groups)
    single = cfg.ppo_epochs == 1 and size >= len(groups)
    old = ref = None
    if not single:
        old = learner.logprobs(batch.packs(everything, budget), batch.entries, batch.temperature)
    if reference is not None:
        packs = batch.packs(everything, reference_budget)
        ref = reference.logprobs(packs, batch.entries, batch.temperature)
    only_advantage = reference is None and cfg.entropy_coeff == 0
    rows: list[dict[str, float]] = []
    for epoch in range(cfg.ppo_epochs):
        order = groups if single else np.random.default_rng([*seed, epoch]).permutation(groups)
        for start in range(0, len(order), size):
            members, entries = batch.pick(order[start : start + size].tolist())
            if not len(entries):
                continue
            weight = np.zeros(batch.entries)
            weight[entries] = token_weights(cfg.loss_agg_mode, batch.trajectories_E[entries])
            terms = Terms(on_device(weight), advantage, old, ref, sampler)
            if only_advantage:  # sequences without advantage have no gradient: they need not be computed
                members = [r for r in members if advantages_N[batch.trajectories_E[batch.offsets[r]]] != 0]
            if not members:
                learner.skip()
            else:
                rows.append(_one_update(learner, batch.packs(members, budget), terms, batch.temperature, cfg))
    keys = rows[0].keys() if rows else ()
    return {k: float(np.mean([r[k] for r in rows])) for k in keys} | {"updates": float(len(rows))}


def _one_update(
    learner: Learner, packs: list[Packed], terms: Terms, temperature: float, cfg: Actor
) -> dict[str, float]:
    sums = {
        name: torch.zeros((), device=learner.device)
        for name in ("policy_loss", "kl", "entropy", "clipped", "drift", "share")
    }
    clip = {
        "clip_ratio_low": cfg.clip_ratio if cfg.clip_ratio_low is None else cfg.clip_ratio_low,
        "clip_ratio_high": cfg.clip_ratio if cfg.clip_ratio_high is None else cfg.clip_ratio_high,
        "clip_ratio_c": cfg.clip_ratio_c,
    }

    def loss(packed: Packed, logp: Tensor, entropy: Tensor) -> Tensor:
        e = packed.entry
        weight = terms.weight[e]
        old = logp.detach() if terms.old is None else terms.old[e]
        policy, clipped = ppo(logp, old, terms.advantage[e], torch.ones_like(logp), **clip)
        total = (weight * policy).sum() - cfg.entropy_coeff * (weight * entropy).sum()
        if terms.reference is not None:
            divergence = (weight * KL[cfg.kl_loss_type](logp, terms.reference[e])).sum()
            total = total + cfg.kl_loss_coef * divergence
            sums["kl"] += divergence.detach()
        with torch.no_grad():
            sums["policy_loss"] += (weight * policy).sum()
            sums["entropy"] += (weight * entropy).sum()
            sums["clipped"] += (weight * clipped).sum()
            sums["drift"] += (weight * (logp - terms.sampler[e]).abs()).sum()
            sums["share"] += weight.sum()
        return total

    learner.backward(packs, loss, temperature)
    made: dict[str, Any] = learner.step()
    made["tokens_computed"] = float(sum(len(p.tokens) for p in packs))
    share = float(sums.pop("share"))  # of the mini-batch's tokens that were computed: statistics are means over those
    means = {k: float(v) / (1.0 if k in ("policy_loss", "kl") else share) for k, v in sums.items()}
    return means | made
