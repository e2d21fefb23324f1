"""The critic: values and gradients as rows alone would give them, whatever the packing; exact through checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel

from recollect.config import Config, Optim
from recollect.config import Critic as CriticConfig
from recollect.config.compose import compose
from recollect.models.lora import add_adapter
from recollect.packing.batch import Batch
from recollect.packing.micro_batch import Packed
from recollect.registries import AGGREGATIONS
from recollect.training import checkpoint
from recollect.training.learner.critic import LocalCritic, ValueModel, explained_variance, value_loss
from recollect.training.learner.trained_model import TrainedModel
from recollect.training.setup import build
from recollect.types import BadInput
from tests.conftest import ARCHITECTURES, make_pair
from tests.packing.test_loss_invariance import samples


def value_model(kind: str = "Qwen3", plain: bool = False, seed: int = 0) -> ValueModel:
    model = ValueModel(make_pair(kind, seed)[0 if plain else 1].base_model)
    torch.manual_seed(seed)
    with torch.no_grad():
        model.value_head.weight.normal_(0, 0.3)
        model.value_head.bias.fill_(0.2)
    return model


def critic_of(model: ValueModel, cfg: CriticConfig | None = None, mini: int = 0, epochs: int = 1) -> LocalCritic:
    cfg = cfg or CriticConfig(optim=Optim(lr=1e-2))
    return LocalCritic(TrainedModel(model, cfg.optim, 20, torch.float32, cfg.grad_clip), cfg, mini, epochs, scale=7.0)


def targets(batch: Batch, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns and old values."""
    rng = np.random.default_rng(seed)
    made = rng.normal(size=(2, batch.entries)).astype(np.float32)
    return torch.from_numpy(made[0]), torch.from_numpy(made[1])


def gradients(critic: LocalCritic, batch: Batch, returns: torch.Tensor, old: torch.Tensor) -> tuple[torch.Tensor, dict]:
    caught: list[torch.Tensor] = []
    model = critic.trained.model
    critic.trained.grad_clip = 1e9
    critic.trained.optimizer.step = lambda: caught.append(  # type: ignore[method-assign]
        torch.cat([p.grad.flatten().clone() for p in model.parameters() if p.grad is not None])
    )
    made = critic.update(batch, returns, old)
    return caught[0], made


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_values_and_gradient_equal_rows_through_the_library(kind: str) -> None:
    """The value of a trained token is read where it is predicted: at the token before it."""
    rows = samples(3)
    batch = Batch.of(rows)
    returns, old = targets(batch)
    critic, plain = critic_of(value_model(kind)), value_model(kind, plain=True)
    values = []
    for row in rows:
        hidden = plain.body(torch.from_numpy(row.ids)[None].long()).last_hidden_state[0, :-1]
        values.append(plain.value_head(hidden)[:, 0][torch.tensor(row.mask[1:])])
    expected = torch.cat(values)
    torch.testing.assert_close(torch.from_numpy(critic.values(batch)), expected.detach(), atol=1e-4, rtol=1e-4)

    near = torch.minimum(torch.maximum(expected, old - 0.5), old + 0.5)
    loss = 0.5 * torch.maximum((expected - returns) ** 2, (near - returns) ** 2).mean()
    loss.backward()
    gradient, made = gradients(critic, batch, returns, old)
    assert made["value_loss"] == pytest.approx(loss.item(), rel=1e-4)
    assert 0 < made["value_clip_fraction"] < 1
    theirs = torch.cat([p.grad.flatten() for p in plain.parameters() if p.grad is not None])
    assert (gradient - theirs).norm() <= 1e-4 * theirs.norm()


@pytest.mark.parametrize("mode", AGGREGATIONS)
@pytest.mark.parametrize("seed", range(2))
def test_loss_and_gradient_do_not_depend_on_packing(mode: str, seed: int) -> None:
    rows = samples(seed)
    batch = Batch.of(rows)
    returns, old = targets(batch, seed)
    whole, made = gradients(critic_of(value_model(), CriticConfig(loss_agg_mode=mode)), batch, returns, old)
    for change in (
        {"ppo_max_token_len_per_gpu": 60},
        {"ppo_max_token_len_per_gpu": 150},
        {"ppo_micro_batch_size_per_gpu": 1},
        {"ppo_micro_batch_size_per_gpu": 3},
    ):
        cfg = CriticConfig(loss_agg_mode=mode, **change)  # type: ignore[arg-type]
        split, same = gradients(critic_of(value_model(), cfg), batch, returns, old)
        assert (whole - split).norm() <= 1e-5 * whole.norm()
        for key in ("value_loss", "value_clip_fraction"):
            assert same[key] == pytest.approx(made[key], rel=1e-5)
    alone = critic_of(value_model(), CriticConfig(loss_agg_mode=mode))
    alone.cut.share = False
    assert (whole - gradients(alone, batch, returns, old)[0]).norm() <= 1e-5 * whole.norm()


def test_the_value_loss_by_hand() -> None:
    values, old, returns = torch.tensor([1.0, 3.0, 0.2]), torch.tensor([0.0, 0.0, 0.0]), torch.tensor([0.0, 4.0, 1.0])
    loss, clipped = value_loss(values, old, returns, 0.5)
    torch.testing.assert_close(loss, torch.tensor([0.5, 0.5 * 3.5**2, 0.5 * 0.8**2]))
    assert clipped.tolist() == [0.0, 1.0, 0.0]


def test_explained_variance_by_hand() -> None:
    returns = torch.tensor([1.0, 2.0, 3.0, 6.0])
    assert explained_variance(returns, returns) == 1.0
    assert explained_variance(torch.full((4,), 7.0), returns) == pytest.approx(0.0)
    assert explained_variance(-returns, returns) == pytest.approx(-3.0)
    assert explained_variance(returns, torch.ones(4)) == 0.0


def test_values_start_at_zero_and_learn_the_returns() -> None:
    model = ValueModel(make_pair("Qwen3")[1].base_model)
    batch = Batch.of(samples(2))
    assert not critic_of(model).values(batch).any()
    returns = torch.from_numpy((batch.trajectories_E % 3).astype(np.float32))
    critic = critic_of(model, CriticConfig(optim=Optim(lr=3e-3), cliprange_value=10.0), mini=1, epochs=2)
    shares = []
    for step in range(12):
        old = critic.values(batch)
        shares.append(critic.update(batch, returns, old, (0, step))["vf_explained_var"])
    assert shares[0] == pytest.approx(0, abs=1e-6)
    assert shares[-1] > 0.8
    assert critic.trained.updates == 12 * 2 * 2


def test_mini_batches_epochs_schedule_and_seed() -> None:
    batch = Batch.of(samples(1, groups=4))
    returns, old = targets(batch)
    cfg = CriticConfig(optim=Optim(lr=1e-2, lr_warmup_steps=10))
    made = []
    for seed in ((1, 0), (1, 0), (2, 0)):
        critic = critic_of(value_model(), cfg, mini=3, epochs=2)
        row = critic.update(batch, returns, old, seed)
        assert row["updates"] == critic.trained.updates == 4
        assert row["lr"] == pytest.approx(1e-2 * np.mean([1, 2, 3, 4]) / 10)
        assert row["grad_norm"] > 0
        made.append(torch.cat([p.detach().flatten() for p in critic.trained.model.parameters()]))
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])


def test_only_the_head_learns_when_asked() -> None:
    model = value_model()
    body = {n: p.detach().clone() for n, p in model.body.named_parameters()}
    head = model.value_head.weight.detach().clone()
    batch = Batch.of(samples(1))
    critic_of(model).update(batch, *targets(batch), head_only=True)
    assert all(torch.equal(p, body[n]) for n, p in model.body.named_parameters())
    assert not torch.equal(model.value_head.weight, head)


# ---- whole configurations ----

VARIANTS: dict[str, list[str]] = {
    "own": [],
    "own-lora": ["critic.model.lora_rank=4", "critic.model.lora_dropout=0.2"],
    "shared": ["critic.model.share_actor=true"],
    "shared-lora": ["critic.model.share_actor=true", "actor_rollout_ref.model.lora_rank=4"],
    "muon": ["critic.optim.name=muon"],
}


def config(path: Path | str, *more: str) -> Config:
    types = ["actor_rollout_ref.actor.dtype=float32", "actor_rollout_ref.rollout.dtype=float32"]
    settings = [f"actor_rollout_ref.model.path={path}", "trainer.device=cpu", "critic.optim.lr=1e-2", *types, *more]
    return compose("needle", settings)


def policy_loss(packed: Packed, logp: torch.Tensor, entropy: torch.Tensor) -> torch.Tensor:
    return -(logp * (1 + packed.entry % 3)).sum() / 100


def one_step(actor: TrainedModel, critic: LocalCritic, step: int) -> dict[str, float]:
    batch = Batch.of(samples(step))
    returns, _ = targets(batch, step)
    old = critic.values(batch)
    actor.backward(batch.packs(range(len(batch.sequences)), 10_000), policy_loss)
    actor.step()
    return critic.update(batch, returns, old, (0, step))


def parameters(actor: TrainedModel, critic: LocalCritic) -> dict[str, torch.Tensor]:
    named = [*actor.model.named_parameters(), *critic.trained.model.named_parameters(prefix="critic")]
    return {n: p.detach().clone() for n, p in named}


@pytest.mark.parametrize("variant", VARIANTS)
def test_saved_and_restored_to_the_bit(variant: str, tmp_path: Path, small_model: Path) -> None:
    cfg = config(small_model, *VARIANTS[variant])

    def make() -> tuple[Any, LocalCritic]:
        parts = build(cfg, Optim(lr=1e-2), 10)
        return parts, parts.learner.make_critic(10)

    parts, critic = make()
    start = parameters(parts.learner.trained, critic)
    one_step(parts.learner.trained, critic, 0)
    saved = checkpoint.save(tmp_path, "step-1", parts.learner, parts.renderer, {"step": 1}, critic)
    at_save = parameters(parts.learner.trained, critic)
    assert not torch.equal(at_save["critic.value_head.weight"], start["critic.value_head.weight"])
    again, restored = make()
    assert checkpoint.load(saved, again.learner, restored) == {"step": 1}
    found = parameters(again.learner.trained, restored)
    assert all(torch.equal(v, found[k]) for k, v in at_save.items())
    made = [one_step(p.learner.trained, c, 1) for p, c in ((parts, critic), (again, restored))]
    assert made[0] == made[1]
    one, two = parameters(parts.learner.trained, critic), parameters(again.learner.trained, restored)
    assert all(torch.equal(v, two[k]) for k, v in one.items())
    assert any(not torch.equal(v, at_save[k]) for k, v in one.items() if ".body." in k)


def test_the_folder_of_a_critic_is_a_model_and_a_head(tmp_path: Path, small_model: Path) -> None:
    cfg = config(small_model)
    parts = build(cfg, Optim(lr=1e-2), 10)
    critic = parts.learner.make_critic(10)
    one_step(parts.learner.trained, critic, 0)
    saved = checkpoint.save(tmp_path, "step-1", parts.learner, parts.renderer, {"step": 1}, critic) / "critic"
    body = AutoModel.from_pretrained(saved, dtype=torch.float32)
    mine = dict(critic.trained.model.body.named_parameters())
    assert all(torch.equal(p, mine[n]) for n, p in body.named_parameters())
    assert {k: tuple(v.shape) for k, v in load_file(saved / "value_head.safetensors").items()} == {
        "weight": (1, 32),
        "bias": (1,),
    }


def test_a_shared_body_learns_from_both_and_keeps_the_optimizers_apart(small_model: Path) -> None:
    cfg = config(small_model, "critic.model.share_actor=true")
    parts = build(cfg, Optim(lr=1e-2), 10)
    critic = parts.learner.make_critic(10)
    with torch.no_grad():
        critic.trained.model.value_head.weight.fill_(0.1)
    weight = parts.learner.trained.model.model.layers[0].mlp.up_proj.weight
    assert any(p is weight for p in critic.trained.model.parameters())
    batch = Batch.of(samples(0))
    returns, old = targets(batch)
    before = weight.detach().clone()
    critic.update(batch, returns, old)
    assert not torch.equal(weight, before)
    assert not parts.learner.trained.state()["optimizer"]["0"]["state"]
    assert all(p.grad is None for p in parts.learner.trained.model.parameters())
    before = weight.detach().clone()
    critic.update(batch, returns, old, head_only=True)
    assert torch.equal(weight, before)


def test_a_critic_of_its_own_starts_from_the_actors_model(small_model: Path) -> None:
    for path in (small_model, "scratch_small"):
        cfg = config(path)
        parts = build(cfg, Optim(lr=1e-2), 10)
        body = parts.learner.make_critic(10).trained.model.body
        theirs = dict(parts.learner.trained.model.base_model.named_parameters())
        assert all(torch.equal(p, theirs[n]) and p is not theirs[n] for n, p in body.named_parameters())


def test_a_critic_that_cannot_read_the_actors_tokens_is_refused(tmp_path: Path, small_model: Path) -> None:
    make_pair("Qwen3")[1].save_pretrained(tmp_path)
    cfg = config(small_model, f"critic.model.path={tmp_path}")
    with pytest.raises(BadInput, match="96 tokens and the actor 592"):
        build(cfg, Optim(), 10).learner.make_critic(10)


def test_a_critic_with_an_adapter_trains_adapter_and_head_alone() -> None:
    body = add_adapter(make_pair("Qwen3")[1].base_model, 4, 8.0, ["all-linear"], 0.0, "x", 0)
    model = ValueModel(body)
    with torch.no_grad():
        model.value_head.weight.fill_(0.1)
    names = {n for n, p in model.named_parameters() if p.requires_grad}
    assert names == {n for n, _ in model.named_parameters() if "lora_" in n or "value_head" in n}
    batch = Batch.of(samples(1))
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    critic = LocalCritic(TrainedModel(model, Optim(lr=1e-2), 5, torch.float32), CriticConfig())
    critic.update(batch, *targets(batch))
    changed = {n for n, p in model.named_parameters() if not torch.equal(p, before[n])}
    assert changed == names


def test_mini_batches_keep_the_order_of_the_batch_unless_they_are_shuffled() -> None:
    batch = Batch.of(samples(1, groups=6))
    order = lambda shuffle: [e for _, e in batch.mini_batches(2, 2, (0,), shuffle)]
    plain = order(False)
    assert np.array_equal(np.concatenate(plain[:3]), np.arange(batch.entries))
    assert all(np.array_equal(one, other) for one, other in zip(plain[:3], plain[3:], strict=True))
    assert not all(np.array_equal(one, other) for one, other in zip(plain, order(True), strict=True))
