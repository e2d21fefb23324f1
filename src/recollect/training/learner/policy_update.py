"""The policy update of one step: mini-batches, the loss of each, and what happened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from recollect.algos.aggregation import token_weights
from recollect.algos.chosen import chosen_loss
from recollect.algos.importance import importance_weights
from recollect.algos.kl import KL
from recollect.config import Actor, Config
from recollect.packing.batch import Batch
from recollect.packing.division import BatchPart
from recollect.packing.micro_batch import Packed
from recollect.training.learner.learner import PolicyTargets
from recollect.training.learner.loss_scale import loss_scale
from recollect.training.learner.token_budget import Budget, MicroBatching
from recollect.training.learner.trained_model import TrainedModel

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


def update_cut(
    cfg: Config, warn: Callable[[str], None] = lambda message: None, part: BatchPart | None = None
) -> MicroBatching:
    """The micro-batches of an update that the configuration asks for."""
    actor = cfg.actor_rollout_ref.actor
    tokens = actor.ppo_max_token_len_per_gpu if actor.use_dynamic_bsz else 1 << 40
    share = cfg.actor_rollout_ref.model.use_remove_padding
    return MicroBatching(Budget(tokens, warn), actor.ppo_micro_batch_size_per_gpu, share, part)


def policy_update(
    cfg: Config,
    trained: TrainedModel,
    batch: Batch,
    targets: PolicyTargets,
    reference: TrainedModel | None = None,
    seed: Sequence[int] = (0,),
    cut: MicroBatching | None = None,
) -> dict[str, float]:
    """All mini-batches and epochs of one step; returns metrics averaged over the updates."""
    actor, cut, device = cfg.actor_rollout_ref.actor, cut or update_cut(cfg, part=trained.world.part), trained.device
    on_device = lambda array: torch.from_numpy(array).to(device)
    sampler, sequence = on_device(batch.sampler_logprobs_E), on_device(batch.sequences_E)
    advantage = on_device(targets.advantages).float()
    old, still = (None if array is None else on_device(array) for array in (targets.old, targets.reference))
    only_advantage = not actor.use_kl_loss and actor.entropy_coeff == 0
    scale = loss_scale(cfg)
    moved = np.unique(batch.sequences_E[targets.advantages != 0])
    rows: list[dict[str, float]] = []
    far = False
    for members, entries in batch.mini_batches(actor.ppo_mini_batch_size, actor.ppo_epochs, seed, actor.shuffle):
        weight = np.zeros(batch.entries, np.float32)
        of_trajectory, of_sequence = batch.trajectories_E[entries], batch.sequences_E[entries]
        weight[entries] = token_weights(actor.loss_agg_mode, of_trajectory, of_sequence, scale)
        terms = Terms(on_device(weight), advantage, sampler, sequence, old, still)
        if only_advantage:  # sequences without advantage have no gradient: they need not be computed
            members = np.intersect1d(members, moved).tolist()
        made = _one_update(cfg, trained, batch, members, terms, reference, cut) if members and not far else None
        far = far or bool(members and made is None)
        if made is None:
            trained.skip()
        else:
            rows.append(made)
    keys = rows[0].keys() if rows else ()
    return {k: float(np.mean([r[k] for r in rows])) for k in keys} | {"updates": float(len(rows))}


def _one_update(
    cfg: Config,
    trained: TrainedModel,
    batch: Batch,
    members: list[int],
    terms: Terms,
    reference: TrainedModel | None,
    cut: MicroBatching,
) -> dict[str, float] | None:
    """One update and its metrics; None where the policy is too far from the one that sampled."""
    actor = cfg.actor_rollout_ref.actor
    exact = reference if actor.use_kl_loss and actor.kl_loss_type == "full" else None

    def work(packs: Sequence[Packed]) -> dict[str, float]:
        sums = {name: torch.zeros((), device=trained.device) for name in (*STATISTICS, "share")}
        trained.backward(packs, lambda *found: _loss(cfg, terms, sums, *found), batch.temperature, exact)
        sums = dict(zip(sums, trained.world.sum(torch.stack([*sums.values()])), strict=True))
        part = float(sums.pop("share"))  # of the mini-batch that was computed: statistics are means over that
        names = [n for n in STATISTICS if cfg.algorithm.rollout_is is not None or not n.startswith("importance")]
        names = [n for n in names if actor.target_kl is not None or n != "policy_kl"]
        means = {k: float(sums[k]) / (1.0 if k in ("policy_loss", "kl") else part) for k in names}
        return means | {"tokens_computed": trained.world.total(sum(len(p.tokens) for p in packs))}

    made = cut.run(batch, work, members, trained.optimizer.zero_grad)
    if actor.target_kl is not None and made["policy_kl"] > FAR * actor.target_kl:
        trained.optimizer.zero_grad()
        return None
    return made | trained.step()


def _loss(
    cfg: Config,
    terms: Terms,
    sums: dict[str, Tensor],
    packed: Packed,
    logp: Tensor,
    entropy: Tensor,
    divergence: Tensor | None = None,
) -> Tensor:
    """The loss of one micro-batch; its metrics are added to ``sums``."""
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
