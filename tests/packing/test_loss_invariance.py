"""The loss and its gradient do not depend on how a batch is split, packed, ordered or shared."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.config import Config, Optim, PolicyLoss
from recollect.packing.batch import Batch
from recollect.training.learner.forward import logprobs_and_entropy
from recollect.training.learner.learner import PolicyTargets
from recollect.training.learner.local_learner import LocalLearner, LocalPolicy
from recollect.training.learner.policy_update import policy_update
from recollect.training.learner.trained_model import TrainedModel
from recollect.training.rl.annotate import annotate
from recollect.types import Sample
from tests.conftest import ARCHITECTURES, make_pair


def samples(seed: int, groups: int = 2, n: int = 4) -> list[Sample]:
    """Trajectories of several sequences; members of a group share beginnings, some are equal."""
    rng = np.random.default_rng(seed)
    out = []
    for g in range(groups):
        turns = [rng.integers(3, 96, rng.integers(26, 40)).tolist() for _ in range(2)]
        middle = rng.integers(3, 96, 2).tolist()
        for i in range(n):
            for t, shared in enumerate(turns):
                own = middle if i % 2 else rng.integers(3, 96, 2).tolist()
                said = middle if i < 2 else rng.integers(3, 96, rng.integers(1, 6)).tolist()
                ids = shared + own + said
                mask = [False] * (len(shared) + len(own)) + [True] * len(said)
                if t == 1:  # an observation and a second reply in the same sequence
                    seen, more = rng.integers(3, 96, 3).tolist(), rng.integers(3, 96, 2).tolist()
                    ids, mask = ids + seen + more, mask + [False] * 3 + [True] * 2
                logprobs = [float(-abs(rng.normal())) if m else 0.0 for m in mask]
                out.append(Sample(np.array(ids), np.array(mask), np.array(logprobs, np.float32), g * n + i, g))
    return out


def configured(**actor: Any) -> Config:
    """A configuration whose actor has some values."""
    cfg = Config()
    for key, value in actor.items():
        setattr(cfg.actor_rollout_ref.actor, key, value)
    cfg.data.max_response_length = 7
    cfg.actor_rollout_ref.ref.log_prob_max_token_len_per_gpu = 10_000
    return cfg


def gradient(model: Any, rows: list[Sample], cfg: Config, other: Any = None) -> tuple[torch.Tensor, dict[str, float]]:
    """The gradient that one update on some sequences leaves, and its metrics."""
    model = copy.deepcopy(model)
    learner = TrainedModel(model, Optim(lr=0.0), 1, torch.float32, grad_clip=1e9)
    caught: list[torch.Tensor] = []
    learner.optimizer.step = lambda: caught.append(  # type: ignore[method-assign]
        torch.cat([p.grad.flatten().clone() for p in model.parameters() if p.grad is not None])
    )
    batch = Batch.of(rows)
    advantages = torch.tensor([((7 * t) % 5) - 2.2 for t in batch.trajectories_E.tolist()])
    policy = LocalLearner(cfg, learner)
    still = None if other is None else TrainedModel(other, Optim(), 1, torch.float32, frozen=True)
    reference = None if still is None else LocalPolicy(still, policy.cut)
    notes = annotate(cfg, policy, reference, None, batch)
    made = policy.update(batch, PolicyTargets(advantages.numpy(), notes.old, notes.reference), reference)
    return caught[0], made


@cache
def two_models() -> tuple[Any, Any]:
    """Two models of one shape; to be copied."""
    return make_pair("Qwen3", 1)[1], make_pair("Qwen3", 2)[1]


MODES = ["token-mean", "trajectory-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    limits=st.sampled_from([(50, None, True), (90, None, True), (10_000, 3, True), (10_000, 1, True), (60, 1, False)]),
    mode=st.sampled_from(MODES),
    loss=st.sampled_from(["ppo", "gspo", "cispo", "dr_grpo", "reinforce"]),
    kl=st.sampled_from(["low_var_kl", "kl", "mse", "abs", "full"]),
    trust=st.sampled_from([None, "token", "sequence"]),
    shuffle=st.randoms(use_true_random=False),
)
def test_gradient_is_the_same_for_any_packing(
    seed: int,
    limits: tuple[int, int | None, bool],
    mode: str,
    loss: str,
    kl: str,
    trust: str | None,
    shuffle: Any,
) -> None:
    ours, other = (copy.deepcopy(model) for model in two_models())
    rows = samples(seed)
    extra = {"loss_agg_mode": mode, "use_kl_loss": True, "kl_loss_coef": 0.1, "kl_loss_type": kl, "entropy_coeff": 0.01}
    wide, narrow = (configured(**extra, policy_loss=PolicyLoss(loss)) for _ in range(2))
    wide.algorithm.rollout_is = narrow.algorithm.rollout_is = trust
    narrow.actor_rollout_ref.actor.ppo_max_token_len_per_gpu = limits[0]
    narrow.actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu = limits[1]
    narrow.actor_rollout_ref.model.use_remove_padding = limits[2]
    whole, metrics = gradient(ours, rows, wide, other)
    mixed = list(rows)
    shuffle.shuffle(mixed)
    split, same = gradient(ours, mixed, narrow, other)
    assert (whole - split).norm() <= 1e-5 * whole.norm()
    for name in ("policy_loss", "kl", "entropy", "logprob_drift"):
        assert same[name] == pytest.approx(metrics[name], rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_trees_equal_rows_through_the_library(kind: str) -> None:
    """Log-probabilities, entropies and gradients against a plain row-by-row forward of the untouched model."""
    plain, ours = make_pair(kind)
    rows = samples(3)
    batch = Batch.of(rows)
    packs = batch.packs(range(len(rows)), 10_000)
    assert sum(len(p.tokens) for p in packs) < 0.6 * sum(len(r.ids) for r in rows)
    loss = torch.zeros(())
    for packed in packs:
        logp, entropy = logprobs_and_entropy(ours, packed)
        loss = loss + (logp[packed.entry_target] * (1 + packed.entry % 3)).sum() + entropy[packed.entry_target].sum()
    loss.backward()
    expected, place = torch.zeros(()), 0
    for row in rows:
        logits = plain(torch.from_numpy(row.ids)[None].long()).logits[0, :-1].float().log_softmax(-1)
        chosen = torch.tensor(row.mask[1:])
        logp = logits.gather(-1, torch.tensor(row.ids[1:])[:, None])[:, 0][chosen]
        entropy = -(logits.exp() * logits).sum(-1)[chosen]
        weight = 1 + (torch.arange(len(logp)) + place) % 3
        expected = expected + (logp * weight).sum() + entropy.sum()
        place += len(logp)
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    a = torch.cat([p.grad.flatten() for p in ours.parameters()])
    b = torch.cat([p.grad.flatten() for p in plain.parameters()])
    assert (a - b).norm() <= 1e-4 * b.norm()


def test_chunked_head_equals_whole_head() -> None:
    _, ours = make_pair("Qwen3")
    packed = Batch.of(samples(1)).packs(range(16), 10_000)[0]
    results = []
    for chunk in (None, 7):
        ours.zero_grad()
        logp, entropy = logprobs_and_entropy(ours, packed, temperature=0.8, chunk=chunk)
        (logp.sum() + entropy.sum()).backward()
        results.append((logp.detach(), entropy.detach(), torch.cat([p.grad.flatten() for p in ours.parameters()])))
    for whole, pieces in zip(*results, strict=True):
        torch.testing.assert_close(pieces, whole, rtol=1e-4, atol=1e-5)


def test_sequences_without_advantage_are_skipped_exactly() -> None:
    _, ours = make_pair("Qwen3")
    rows = samples(5)
    full, _ = gradient(ours, rows, configured())
    learner = TrainedModel(copy.deepcopy(ours), Optim(lr=0.0), 1, torch.float32)
    batch = Batch.of(rows)
    flat = policy_update(Config(), learner, batch, PolicyTargets(np.zeros(batch.entries, np.float32)))
    assert flat["updates"] == 0
    computed = gradient(ours, rows, configured(entropy_coeff=1e-30))[0]  # with any other term everything is computed
    assert (full - computed).norm() <= 1e-5 * computed.norm()
