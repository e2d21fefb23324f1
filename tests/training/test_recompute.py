"""Layers recompute where memory is short and nowhere else: actor and critic, whatever the type."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen3Config

from recollect.config import Config, Optim
from recollect.models.attention import register
from recollect.models.compiled import compile_layers
from recollect.packing.batch import Batch
from recollect.training.learner import recompute
from recollect.training.learner import trained_model as learning
from recollect.training.learner.critic import LocalCritic
from recollect.training.learner.forward import statistics
from recollect.training.learner.trained_model import TrainedModel
from recollect.training.setup import build
from tests.conftest import make_pair
from tests.packing.test_loss_invariance import samples
from tests.training.test_critic import config, targets

AMPLE = 1 << 40


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """What is free, to be set by a test."""
    said = {"free": AMPLE}
    monkeypatch.setattr(recompute, "free_bytes", lambda device: said["free"])
    return said


def passes(model: nn.Module) -> Counter[int]:
    """How often each layer runs from now on."""
    found: Counter[int] = Counter()
    for module in model.modules():
        if hasattr(module, "layer_idx"):
            module.register_forward_pre_hook(lambda m, args: found.update([int(m.layer_idx)]))  # type: ignore[arg-type]
    return found


def gradient(work: TrainedModel) -> Tensor:
    """Of a loss over two micro-batches."""
    packs = Batch.of(samples(3)).packs(range(16), 150)
    assert len(packs) > 1
    work.backward(packs, lambda packed, logp, entropy: -logp.sum() / 100)
    found = torch.cat([p.grad.flatten() for p in work.optimizer.gradients() if p.grad is not None])
    work.optimizer.zero_grad()
    return found


@pytest.mark.parametrize("kind", ["Qwen3", "Gemma2"])
@pytest.mark.parametrize("half", [False, True])
def test_none_while_there_is_room_and_the_same_gradient_where_there_is_not(
    kind: str, half: bool, memory: dict[str, int]
) -> None:
    model = make_pair(kind)[1]
    recompute.allow(model)
    work = TrainedModel(model, Optim(), 1, torch.bfloat16 if half else torch.float32, half=half)
    ran = passes(model)
    expected, once = gradient(work), dict(ran)
    assert len(set(once.values())) == 1
    ran.clear()
    memory["free"] = 0
    found = gradient(work)
    assert ran == {layer: 2 * count for layer, count in once.items()}
    assert torch.equal(found, expected)


def test_as_many_as_it_takes(memory: dict[str, int]) -> None:
    model = make_pair("Qwen3")[1]
    recompute.allow(model)
    layers = list(model.model.layers)
    counts = []
    for free in range(0, 4 * 10**7, 10**5):
        memory["free"] = free
        recompute.choose(model, 300, 10**6)
        chosen = [layer.gradient_checkpointing for layer in layers]
        counts.append(sum(chosen))
        assert chosen == sorted(chosen, reverse=True), "the last layers' activations are needed first"
    assert counts == sorted(counts, reverse=True)
    assert set(counts) == {0, 1, 2, 3}


def test_what_is_owed_shrinks_as_it_is_paid() -> None:
    for half in (False, True):
        work = TrainedModel(make_pair("Qwen3")[1], Optim(), 1, torch.bfloat16, half=half)
        total = sum(p.numel() for p in work.model.parameters())
        assert work.optimizer.owed() == 12 * total
        work.backward(Batch.of(samples(3)).packs(range(16), 150), lambda packed, logp, entropy: logp.sum())
        assert work.optimizer.owed() == 8 * total
        work.step()
        assert work.optimizer.owed() == 4 * total


def critic_of(cfg: Config) -> tuple[TrainedModel, LocalCritic]:
    parts = build(cfg, Optim(lr=1e-2), 10)
    return parts.learner.trained, parts.learner.make_critic(10)


CRITICS = {
    "own": ["actor_rollout_ref.model.enable_gradient_checkpointing=false"],
    "own with an adapter": ["critic.model.lora_rank=4"],
    "shared": ["critic.model.share_actor=true", "critic.model.enable_gradient_checkpointing=false"],
    "shared with an adapter": ["critic.model.share_actor=true", "actor_rollout_ref.model.lora_rank=4"],
}


@pytest.mark.parametrize("variant", CRITICS)
def test_a_critic_recomputes_too(variant: str, memory: dict[str, int], small_model: Path) -> None:
    batch = Batch.of(samples(1))
    made = []
    for free in (AMPLE, 0):
        memory["free"] = free
        _, critic = critic_of(config(small_model, *CRITICS[variant]))
        ran = passes(critic.trained.model)
        row = critic.update(batch, *targets(batch))
        made.append((row, {n: p.detach().clone() for n, p in critic.trained.model.named_parameters()}, dict(ran)))
    (first, weights, once), (second, others, twice) = made
    assert twice == {layer: 2 * count for layer, count in once.items()}
    assert first == second
    assert all(torch.equal(weights[n], others[n]) for n in weights)


def test_who_does_not_want_it_is_left_alone(memory: dict[str, int], small_model: Path) -> None:
    memory["free"] = 0
    off = [f"{part}.model.enable_gradient_checkpointing=false" for part in ("actor_rollout_ref", "critic")]
    for more in ([], ["critic.model.share_actor=true"]):
        actor, critic = critic_of(config(small_model, *off, *more))
        ran = passes(critic.trained.model)
        batch = Batch.of(samples(1))
        critic.update(batch, *targets(batch))
        assert set(ran.values()) == {1}
        assert not actor.model.is_gradient_checkpointing


def test_a_frozen_embedding_needs_no_gradient(memory: dict[str, int], small_model: Path) -> None:
    actor = build(config(small_model, "actor_rollout_ref.model.lora_rank=4"), Optim(), 1).learner.trained
    seen: list[bool] = []
    words = actor.model.get_input_embeddings()
    words.register_forward_hook(lambda module, args, out: seen.append(out.requires_grad))
    memory["free"] = 0
    assert gradient(actor).any()
    assert seen
    assert not any(seen)


def test_a_model_whose_layers_cannot_is_trained_as_it_is(
    memory: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_pair("Qwen3")[1]
    monkeypatch.setattr(type(model), "supports_gradient_checkpointing", False)
    recompute.allow(model)
    memory["free"] = 0
    assert gradient(TrainedModel(model, Optim(), 1, torch.float32)).any()


# ---- the estimate ----

SHAPE = {
    "vocab_size": 96,
    "hidden_size": 256,
    "intermediate_size": 896,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
}


def kept_bytes(config: Any, dtype: torch.dtype, half: bool, compiled: bool) -> float:
    """What a layer really keeps of each token: all that autograd saves, with more layers and with fewer."""
    found = []
    for layers in (5, 3):
        config.num_hidden_layers = layers
        config.layer_types = ["full_attention"] * layers
        model: Any = AutoModelForCausalLM.from_config(config, attn_implementation=register()).float()
        work = TrainedModel(model, Optim(), 1, dtype, half=half)
        if compiled:
            compile_layers(model, trained=True)
        sizes: dict[int, int] = {}
        alive: list[Tensor] = []
        weights = {p.untyped_storage().data_ptr() for p in model.parameters()}

        def keep(x: Tensor, sizes: Any = sizes, alive: Any = alive, weights: Any = weights) -> Tensor:
            storage = x.untyped_storage()
            if storage.data_ptr() not in weights:
                sizes[storage.data_ptr()] = storage.nbytes()
                alive.append(x)
            return x

        packed = Batch.of(samples(3)).packs(range(16), 10_000)[0]
        model.train()
        with work.compute(), torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            made = statistics(model, packed)
        found.append(sum(sizes.values()) / len(packed.tokens))
        del made
    return (found[0] - found[1]) / 2


KINDS = {"float32": (torch.float32, False), "autocast": (torch.bfloat16, False), "bfloat16": (torch.bfloat16, True)}


@pytest.mark.parametrize(
    ("model", "kind", "compiled"),
    [
        *((model, kind, False) for model in (Qwen2Config, Qwen3Config) for kind in KINDS),
        *(
            pytest.param(model, kind, True, marks=pytest.mark.slow)
            for model, kind in ((Qwen3Config, "bfloat16"), (Qwen2Config, "bfloat16"), (Qwen3Config, "autocast"))
        ),
    ],
)
def test_the_estimate_is_near_what_is_kept(
    model: Any, kind: str, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if compiled:  # as on a GPU: the library's modules, and what a compiler would keep of them
        monkeypatch.setattr(learning, "replace_modules", lambda model: None)
        whole, by = nn.Module.compile, "aot_eager_decomp_partition"
        monkeypatch.setattr(nn.Module, "compile", lambda self, **more: whole(self, backend=by, **more))
        torch._dynamo.reset()
    config, (dtype, half) = model(**SHAPE, head_dim=64), KINDS[kind]
    guess = recompute.kept_numbers(config, compiled) * (2 if half else 4)
    assert 1 <= guess / kept_bytes(config, dtype, half, compiled) <= (1.15 if compiled else 2)
