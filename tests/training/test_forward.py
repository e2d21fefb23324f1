"""What is computed of every token: piecewise as whole; what cannot be computed piecewise is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from recollect.config import Optim
from recollect.models.attention import register, using
from recollect.packing.batch import Batch
from recollect.packing.micro_batch import Packed
from recollect.training.learner import forward
from recollect.training.learner.forward import check_head, logprobs_and_entropy, predict, statistics
from recollect.training.learner.trained_model import TrainedModel
from recollect.types import BadInput
from tests.conftest import ARCHITECTURES, SHAPE, make_pair
from tests.packing.test_loss_invariance import samples


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_known_architectures_pass(kind: str) -> None:
    check_head(make_pair(kind)[1])


def granite() -> Any:
    from transformers import AutoModelForCausalLM, GraniteConfig

    torch.manual_seed(0)
    config = GraniteConfig(**SHAPE, logits_scaling=7.0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=register()).float()
    with torch.no_grad():
        model.lm_head.weight.mul_(30)
    return model


def test_scaled_logits_are_those_of_the_model() -> None:
    model = granite()
    check_head(model)
    packed = Batch.of(samples(2)).packs(range(4), 10_000)[0]
    with torch.no_grad(), using(packed.plan):
        found, _ = logprobs_and_entropy(model, packed)
        logits = model(input_ids=packed.tokens[None], position_ids=packed.positions[None], use_cache=False).logits[0]
    expected = logits[packed.parents].log_softmax(-1).gather(-1, packed.targets[:, None])[:, 0]
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


def test_logits_that_are_made_in_an_unknown_way_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = granite()
    own = model.forward

    def scaled(input_ids: torch.Tensor, **more: Any) -> Any:
        out = own(input_ids=input_ids, **more)
        out.logits = out.logits * (1 + input_ids % 3).unsqueeze(-1)
        return out

    monkeypatch.setattr(model, "forward", scaled)
    with pytest.raises(BadInput, match="granite"):
        check_head(model)


@pytest.mark.parametrize("kind", ["Qwen3", "Gemma2"])
def test_a_model_without_our_attention_is_refused(kind: str) -> None:
    with pytest.raises(BadInput, match="was not loaded with recollect's attention"):
        logprobs_and_entropy(make_pair(kind)[0], Batch.of(samples(2)).packs(range(4), 10_000)[0])


@pytest.mark.parametrize("kind", ["Qwen3", "Gemma2"])
@pytest.mark.parametrize("chunk", [None, 5])
def test_the_exact_divergence_equals_a_direct_one(kind: str, chunk: int | None) -> None:
    """Against the library's own whole logits, with the gradient of the policy and none of the reference."""
    (plain, ours), (ref_plain, ref_ours) = make_pair(kind, 1), make_pair(kind, 2)
    rows = samples(4)
    packs = Batch.of(rows).packs(range(len(rows)), 10_000)
    weight = lambda n: 1 + torch.arange(n) % 3
    found, expected = torch.zeros(()), torch.zeros(())
    for packed in packs:
        made = statistics(ours, packed, 0.7, chunk, predict(ref_ours, packed))
        assert made.divergence is not None
        logprob, entropy = logprobs_and_entropy(ours, packed, 0.7)
        torch.testing.assert_close(made.logprob, logprob, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(made.entropy, entropy, rtol=1e-5, atol=1e-5)
        kl = made.divergence[packed.entry_target]
        found = found + (kl * (1 + packed.entry % 3)).sum()
    found.backward()
    place = 0
    for row in rows:
        ids, chosen = torch.from_numpy(row.ids)[None].long(), torch.from_numpy(row.mask[1:])
        p = (plain(ids).logits[0, :-1].float() / 0.7).log_softmax(-1)[chosen]
        q = (ref_plain(ids).logits[0, :-1].float() / 0.7).log_softmax(-1)[chosen].detach()
        expected = expected + ((p.exp() * (p - q)).sum(-1) * weight(place + len(p))[place:]).sum()
        place += len(p)
    expected.backward()
    assert found.item() == pytest.approx(expected.item(), rel=1e-4)
    a, b = (torch.cat([p.grad.flatten() for p in m.parameters()]) for m in (ours, plain))
    assert (a - b).norm() <= 1e-4 * b.norm()
    assert all(p.grad is None for p in ref_ours.parameters())


def test_the_learner_measures_the_divergence_that_it_trains_on() -> None:
    ours, other = make_pair("Qwen3", 1)[1], make_pair("Qwen3", 2)[1]
    batch = Batch.of(samples(4))
    packs = batch.packs(range(len(batch.sequences)), 10_000)
    learner = TrainedModel(ours, Optim(), 1, torch.float32)
    reference = TrainedModel(other, Optim(), 1, torch.float32, frozen=True)
    measured = learner.divergence(packs, batch.entries, reference, 0.7)
    trained = torch.zeros(batch.entries)

    def loss(packed: Packed, logp: torch.Tensor, entropy: torch.Tensor, kl: torch.Tensor) -> torch.Tensor:
        trained[packed.entry] = kl.detach()
        return kl.sum()

    learner.backward(packs, loss, 0.7, reference)
    torch.testing.assert_close(trained, measured)
    assert (measured > 0).all()
    learner.model.load_state_dict(other.state_dict())
    assert learner.divergence(packs, batch.entries, reference).abs().max() < 1e-5


def test_logits_are_kept_where_memory_is_ample(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: all at once while half the free memory holds them twice, else pieces; float32 never."""
    hidden = torch.randn(50, 8, dtype=torch.bfloat16, requires_grad=True)
    policy = forward.Prediction(hidden, torch.nn.Linear(8, 1000, False, dtype=torch.bfloat16), None)
    monkeypatch.setattr(forward, "CHUNK_LOGITS", {"cpu": 7000})
    assert policy.at_once(1000) == 7  # there is no such pass on a CPU
    monkeypatch.setattr(forward, "_kernel", lambda device: forward._figures)
    monkeypatch.setattr(forward, "free_bytes", lambda device: 2 * 2 * 2 * 50 * 1000)
    assert policy.at_once(1000) == 50
    assert policy.at_once(1000, models=2) == 3
    assert policy._replace(softcap=30.0).at_once(1000) == policy._replace(hidden=hidden.float()).at_once(1000) == 7
    with torch.no_grad():
        assert policy.at_once(1000) == 7
    monkeypatch.setattr(forward, "free_bytes", lambda device: 2 * 2 * 2 * 50 * 1000 - 1)
    assert policy.at_once(1000) == 7


@pytest.mark.parametrize("kind", ["Qwen3", "Gemma2"])
def test_recomputed_activations_give_the_same_gradient(kind: str) -> None:
    packs = Batch.of(samples(4)).packs(range(16), 150)
    grads = []
    for recompute in (False, True):
        model = make_pair(kind)[1]
        if recompute:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        TrainedModel(model, Optim(), 1, torch.float32).backward(packs, lambda packed, logp, entropy: logp.sum())
        grads.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    assert (grads[0] - grads[1]).norm() <= 1e-6 * grads[0].norm()
