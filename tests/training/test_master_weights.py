"""Float32 weights behind bfloat16 ones: on any device."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from recollect.config import Offload, Optim
from recollect.config.compose import compose
from recollect.models.shared_weights import is_shared, see_same, twin
from recollect.packing.batch import Batch
from recollect.training.learner.recompute import layers_to_recompute
from recollect.training.learner.trained_model import TrainedModel, reference_of
from recollect.training.learner.weight_files import read_weights
from recollect.training.setup import build
from tests.conftest import make_pair
from tests.packing.test_loss_invariance import samples

DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu])]


def learner(device: str, half: bool, **more: Any) -> TrainedModel:
    """A learner over the same small model."""
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    model = make_pair("Qwen3")[1].to(device)
    return TrainedModel(model, Optim(lr=1e-3, weight_decay=0.0), 10, torch.bfloat16, half=half, **more)


def update(work: TrainedModel, budget: int = 10_000) -> float:
    """One update on a few sequences."""
    packs = Batch.of(samples(3)).packs(range(16), budget)
    value = work.backward(packs, lambda packed, logp, entropy: -logp.sum() / 100)
    work.step()
    return value


def flat(work: TrainedModel) -> torch.Tensor:
    """The exact weights."""
    return torch.cat([p.detach().flatten() for p in work.plain(torch.float32).parameters()])


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_of_a_token_in_many_places_are_all_counted(device: str) -> None:
    work = learner(device, True)
    assert work.masters is not None
    ids = torch.full((4000,), 7, device=device)
    work.model.get_input_embeddings()(ids).sum().backward()
    work.masters.hand_over()
    gradient = work.masters.weights["model.embed_tokens.weight"].grad
    assert gradient is not None
    assert float(gradient[7, 0]) == pytest.approx(4000, rel=0.01)  # a sum in bfloat16 stops at 256


@pytest.mark.parametrize("device", DEVICES)
def test_training_with_masters_is_close_to_training_in_float32(device: str) -> None:
    half, whole = learner(device, True), learner(device, False)
    start = flat(whole)
    assert torch.equal(flat(half), start)
    for _ in range(5):
        update(half)
        update(whole)
    moved = flat(whole) - start
    assert torch.nn.functional.cosine_similarity(flat(half) - start, moved, 0) > 0.9
    assert all(p.dtype == torch.bfloat16 for p in half.model.parameters())


def test_small_steps_are_not_lost_to_rounding() -> None:
    work = learner("cpu", True)
    work.optim = Optim(lr=1e-6)
    before = flat(work)
    for _ in range(3):
        update(work)
    assert (flat(work) != before).float().mean() > 0.9  # bfloat16 weights would mostly stay where they are


def test_gradients_of_micro_batches_add_up_in_float32() -> None:
    norms = []
    for budget in (10_000, 60):
        work = learner("cpu", True)
        packs = Batch.of(samples(3)).packs(range(16), budget)
        work.backward(packs, lambda packed, logp, entropy: -logp.sum() / 100)
        grads = [p.grad for p in work.optimizer.gradients()]
        assert all(g is not None and g.dtype == torch.float32 for g in grads)
        norms.append(torch.cat([g.flatten() for g in grads if g is not None]))
    assert (norms[0] - norms[1]).norm() <= 0.03 * norms[0].norm()


def test_dropped_gradients_leave_nothing_behind() -> None:
    work = learner("cpu", True)
    work.backward(Batch.of(samples(3)).packs(range(16), 100), lambda packed, logp, entropy: logp.sum())
    work.optimizer.zero_grad()
    assert all(p.grad is None for p in work.optimizer.gradients())


def test_stored_weights_come_back_exactly(tmp_path: Path) -> None:
    work = learner("cpu", True)
    for _ in range(3):
        update(work)
    work.plain(torch.float32).save_pretrained(tmp_path)
    other = learner("cpu", True)
    read_weights(tmp_path, other.model, other.masters)
    assert torch.equal(flat(other), flat(work))
    for mine, theirs in zip(other.model.parameters(), work.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_twin_sees_every_update() -> None:
    work = learner("cpu", True)
    other = twin(work.model)
    assert is_shared(work.model, other)
    before = [p.clone() for p in other.parameters()]
    update(work)
    changed = [not torch.equal(a, b) for a, b in zip(before, other.parameters(), strict=True)]
    assert any(changed)
    for mine, theirs in zip(work.model.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert not any(p.requires_grad for p in other.parameters())


def test_weights_laid_out_anew_are_seen_by_both() -> None:
    work = learner("cpu", True)
    other = twin(work.model)
    for parameter in other.parameters():
        parameter.data = parameter.data.clone()
    assert not is_shared(work.model, other)
    see_same(work.model, other)
    update(work)
    for mine, theirs in zip(work.model.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_second_learner_moves_the_same_masters() -> None:
    work = learner("cpu", True)
    second = TrainedModel(work.model, Optim(lr=1e-2), 5, torch.bfloat16, owner=work)
    before = flat(work)
    update(second)
    assert not torch.equal(flat(work), before)
    assert torch.equal(flat(work), flat(second))


def test_the_reference_stays_and_is_as_small() -> None:
    work = learner("cpu", True)
    reference = reference_of(work)
    kept = [p.clone() for p in reference.model.parameters()]
    update(work)
    assert all(p.dtype == torch.bfloat16 for p in reference.model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(kept, reference.model.parameters(), strict=True))


def test_frequencies_of_positions_stay_exact() -> None:
    work = learner("cpu", True)
    exact = make_pair("Qwen3")[1]
    for (name, mine), theirs in zip(work.model.named_buffers(), exact.buffers(), strict=True):
        assert torch.equal(mine, theirs), name


@pytest.mark.gpu
def test_masters_in_host_memory_train_the_same() -> None:
    away, here = learner("cuda", True, offload=Offload(optimizer_offload=True)), learner("cuda", True)
    for _ in range(3):
        assert update(away) == pytest.approx(update(here), rel=1e-3)
    assert torch.allclose(flat(away).cpu(), flat(here).cpu(), atol=1e-4)


@pytest.mark.gpu
def test_compiled_layers_train_the_same() -> None:
    from recollect.models.compiled import compile_layers

    plain, compiled = learner("cuda", True), learner("cuda", True)
    compile_layers(compiled.model, trained=True)
    start = flat(plain)
    for _ in range(3):
        update(plain)
        update(compiled)
    a, b = flat(plain) - start, flat(compiled) - start
    assert torch.nn.functional.cosine_similarity(a, b, 0) > 0.98
    assert copy.deepcopy(compiled.model) is not None  # a reference can be made of it


@given(
    layers=st.integers(1, 80),
    kept=st.integers(2, 10**9),
    share=st.floats(0.01, 0.9),
    free=st.integers(-(10**9), 10**11),
)
def test_as_few_layers_recompute_as_memory_asks_for(layers: int, kept: int, share: float, free: int) -> None:
    entry = int(kept * share)
    count = layers_to_recompute(layers, kept, entry, free)
    used = lambda n: (layers - n) * kept + n * entry
    assert 0 <= count <= layers
    assert used(count) <= free or count == layers
    assert count == 0 or used(count - 1) > free


def test_a_second_learner_over_the_same_weights_leaves_them_shared(small_model: Path) -> None:
    """As SFT before RL: what it teaches is what the engine samples with."""
    kinds = [f"actor_rollout_ref.{part}.dtype=bfloat16" for part in ("actor", "rollout")]
    cfg = compose("needle", [f"actor_rollout_ref.model.path={small_model}", "trainer.device=cpu", *kinds])
    parts = build(cfg, Optim(), 10)
    assert parts.learner.trained.half
    before = {n: p.clone() for n, p in parts.sampler.model.named_parameters()}
    teacher = TrainedModel(parts.learner.trained.model, Optim(lr=1e-2), 10, torch.bfloat16, owner=parts.learner.trained)
    update(teacher)
    parts.sync(1)
    assert is_shared(parts.learner.trained.model, parts.sampler.model)
    mine = dict(parts.learner.trained.model.named_parameters())
    for name, p in parts.sampler.model.named_parameters():
        assert torch.equal(p, mine[name]), name
        assert not torch.equal(p, before[name]), name


def test_weights_that_share_a_part_only_are_not_shared() -> None:
    model = make_pair("Qwen3")[1]
    other = twin(model)
    assert is_shared(model, other)
    list(other.parameters())[-1].data = list(other.parameters())[-1].data.clone()
    assert not is_shared(model, other)
