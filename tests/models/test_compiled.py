"""Compiled layers as a GPU has them, on the CPU: the same gradients, few graphs, actor and critic alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from recollect.config import Optim
from recollect.models.compiled import compile_layers
from recollect.packing import micro_batch as packed
from recollect.packing.batch import Batch
from recollect.packing.micro_batch import TreePlan
from recollect.training import checkpoint
from recollect.training.learner import critic as critic_module
from recollect.training.learner import from_config, recompute, trained_model
from recollect.training.learner.trained_model import TrainedModel
from recollect.training.setup import build
from tests.compiling import compiling_lightly
from tests.conftest import make_pair
from tests.packing.test_loss_invariance import samples
from tests.training.test_critic import config, targets


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """How many graphs were compiled, by a compiler that runs them as they are; nothing is replaced as on a CPU."""
    count = compiling_lightly(monkeypatch)
    monkeypatch.setattr(trained_model, "replace_modules", lambda model: None)
    monkeypatch.setattr(packed, "able", lambda *given: False)
    torch._dynamo.reset()
    yield count
    torch._dynamo.reset()


def gradient(work: TrainedModel, seed: int = 3, budget: int = 150) -> tuple[Tensor, list[int]]:
    """Of a loss over some trees in micro-batches, and these batches' sizes."""
    batch = Batch.of(samples(seed, groups=1 + seed % 3, n=1 + seed % 5))
    packs = batch.packs(range(len(batch.sequences)), budget)
    work.backward(packs, lambda packed, logp, entropy: -logp.sum() / 100)
    found = torch.cat([p.grad.flatten() for p in work.optimizer.gradients() if p.grad is not None])
    work.optimizer.zero_grad()
    return found, [len(p.tokens) for p in packs]


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("Mistral", torch.float32),
        pytest.param("Qwen3", torch.bfloat16, marks=pytest.mark.slow),
        pytest.param("Gemma2", torch.float32, marks=pytest.mark.slow),
    ],
)
def test_what_is_attended_by_segments_has_its_gradient(
    kind: str, dtype: torch.dtype, graphs: Callable[[], int]
) -> None:
    """Windows, caps, float32 and autocast: the operator computes the segments again, with autograd inside."""
    plain, compiled = (TrainedModel(make_pair(kind)[1], Optim(), 1, dtype) for _ in range(2))
    compile_layers(compiled.model, trained=True)
    (expected, _), (found, _) = gradient(plain), gradient(compiled)
    assert graphs() > 0
    limit = 1e-5 if dtype == torch.float32 else 0.03
    assert (found - expected).norm() <= limit * expected.norm()


def test_few_graphs_serve_batches_of_all_shapes(graphs: Callable[[], int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes, trees, and how many layers recompute: no recompilation storm."""
    chosen = {"layers": 0}
    monkeypatch.setattr(recompute, "layers_to_recompute", lambda layers, *given: chosen["layers"])
    model = make_pair("Qwen3")[1]
    recompute.allow(model)
    work = TrainedModel(model, Optim(), 1, torch.bfloat16, half=True)
    compile_layers(model, trained=True)
    sizes: list[int] = []
    for seed, budget, chosen["layers"] in ((0, 60, 0), (1, 150, 3), (2, 10_000, 1), (3, 60, 2), (4, 150, 0)):
        sizes += gradient(work, seed, budget)[1]
    batch = Batch.of(samples(3))
    work.logprobs(batch.packs(range(16), 100), batch.entries)
    assert len(set(sizes)) >= 8
    assert 0 < graphs() <= 4


def test_under_autocast_all_is_attended_in_its_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernels of a GPU ask for; positions turn queries and keys in float32."""
    seen: set[torch.dtype] = set()
    whole = TreePlan.attend

    def attend(self: TreePlan, layer: int, *given: Any) -> Tensor:
        seen.update(x.dtype for x in given[:3])
        return whole(self, layer, *given)

    monkeypatch.setattr(TreePlan, "attend", attend)
    expected = gradient(TrainedModel(make_pair("Qwen3")[1], Optim(), 1, torch.float32))[0]
    assert seen == {torch.float32}
    seen.clear()
    found = gradient(TrainedModel(make_pair("Qwen3")[1], Optim(), 1, torch.bfloat16))[0]
    assert seen == {torch.bfloat16}
    assert (found - expected).norm() <= 0.1 * expected.norm()


@pytest.mark.slow
def test_a_large_critic_of_its_own_is_compiled(
    graphs: Callable[[], int], monkeypatch: pytest.MonkeyPatch, small_model: Path, tmp_path: Path
) -> None:
    cfg = config(small_model, "actor_rollout_ref.actor.dtype=bfloat16")
    parts = build(cfg, Optim(), 10)
    batch = Batch.of(samples(1))
    plain = parts.learner.make_critic(10)
    monkeypatch.setattr(critic_module, "worth_compiling", lambda model: True)
    compiled = parts.learner.make_critic(10)
    made = [critic.update(batch, *targets(batch)) for critic in (plain, compiled)]
    assert 0 < graphs() <= 4
    assert made[0] == pytest.approx(made[1], rel=0.05)
    a, b = (torch.from_numpy(critic.values(batch)) for critic in (compiled, plain))
    assert a.any()
    assert (a - b).norm() <= 0.05 * b.norm()
    saved = checkpoint.save(tmp_path, "step-1", parts.learner, parts.renderer, {"step": 1}, compiled)
    checkpoint.load(saved, parts.learner, plain)
    mine, theirs = (dict(c.trained.model.named_parameters()) for c in (compiled, plain))
    assert all(torch.equal(mine[n], theirs[n]) for n in mine)


def test_a_shared_critic_is_compiled_as_the_actor_is(monkeypatch: pytest.MonkeyPatch, small_model: Path) -> None:
    asked: list[Any] = []
    for maker in (from_config, critic_module):
        monkeypatch.setattr(maker, "worth_compiling", lambda model: True)
        monkeypatch.setattr(maker, "compile_layers", lambda model, trained: asked.append(model))
    cfg = config(small_model, "critic.model.share_actor=true")
    actor = build(cfg, Optim(), 10).learner
    actor.make_critic(10)
    assert asked == [actor.trained.model]
