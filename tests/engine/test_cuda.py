"""The same engine and learner on a GPU: equal to the library there, and to the CPU."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.attention import (
    activate_flash_attention_impl,
    current_flash_attention_impl,
    restore_flash_attention_impl,
)

from recollect.engine import Engine
from recollect.models.compiled import compile_layers
from recollect.packing import dense_attention as dense
from recollect.packing.batch import Batch
from recollect.packing.flash_attention import KERNELS, is_installed
from recollect.packing.micro_batch import pack
from recollect.packing.tree import build_tree
from recollect.packing.tree_attention import Block
from recollect.training.learner.forward import logprobs_and_entropy
from tests.conftest import ARCHITECTURES, make_pair
from tests.engine.test_batching import CASES, run
from tests.packing.test_loss_invariance import samples

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def engine(model: Any, graphs: bool, **more: Any) -> Engine:
    """An engine on the GPU, with or without CUDA graphs."""
    if not graphs:
        return Engine(model, decode=str, **more)
    from recollect.engine.cuda.cuda_backend import CudaBackend
    from recollect.engine.cuda.fused_projections import fuse

    fuse(model)
    return Engine(model, decode=str, backend=CudaBackend(model), **more)


@pytest.mark.parametrize("graphs", [True, False], ids=["graphs", "eager"])
@pytest.mark.parametrize("kind", ARCHITECTURES)
@pytest.mark.parametrize("case", CASES)
def test_greedy_on_the_gpu_equals_the_cpu(kind: str, case: str, graphs: bool) -> None:
    _, ours = make_pair(kind)
    prompts = CASES[case]()
    expected = run(Engine(ours, decode=str, max_batched_tokens=128), prompts, temperature=0.0)
    there = engine(copy.deepcopy(ours).cuda(), graphs, max_batched_tokens=128)
    found = run(there, prompts, temperature=0.0)
    for a, b in zip(expected, found, strict=True):
        assert a.ids == b.ids
        torch.testing.assert_close(torch.tensor(a.logprobs), torch.tensor(b.logprobs), atol=1e-3, rtol=0)


@pytest.mark.parametrize("graphs", [True, False], ids=["graphs", "eager"])
def test_samples_on_the_gpu_equal_the_cpu(graphs: bool) -> None:
    _, ours = make_pair("Qwen3")
    prompts = CASES["shared beginning"]()
    expected = run(Engine(ours, decode=str), prompts, seed=5)
    found = run(engine(copy.deepcopy(ours).cuda(), graphs), prompts, seed=5)
    assert [d.ids for d in expected] == [d.ids for d in found]


@pytest.mark.parametrize("kind", ["Qwen2", "Qwen3", "Llama", "Mistral"])
@pytest.mark.parametrize("case", CASES)
def test_steps_in_products_of_our_own_equal_the_library(kind: str, case: str) -> None:
    from tests.engine.test_layers import USUAL, make

    prompts, found = CASES[case](), []
    for ours in (True, False):
        there = engine(make(kind, **USUAL[kind]), True, max_batched_tokens=128)
        assert there.backend.layers is not None  # type: ignore[attr-defined]
        if not ours:
            there.backend.layers = None  # type: ignore[attr-defined]
        found.append(run(there, prompts, temperature=0.0))
    for a, b in zip(*found, strict=True):
        assert a.ids == b.ids
        torch.testing.assert_close(torch.tensor(a.logprobs), torch.tensor(b.logprobs), atol=1e-3, rtol=0)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_tree_gradients_on_the_gpu_equal_the_cpu(kind: str) -> None:
    _, ours = make_pair(kind)
    there = copy.deepcopy(ours).cuda()
    for packed in Batch.of(samples(3)).packs(range(16), 10_000):
        for model, part in ((ours, packed), (there, packed.to("cuda"))):
            logp, entropy = logprobs_and_entropy(model, part)
            (logp.sum() + entropy.sum()).backward()
    a = torch.cat([p.grad.flatten() for p in ours.parameters()])
    b = torch.cat([p.grad.flatten().cpu() for p in there.parameters()])
    assert (a - b).norm() <= 1e-3 * a.norm()


def test_trees_by_levels_equal_trees_by_segments() -> None:
    """In bfloat16 the GPU attends level by level; the same micro-batch by segments gives the same."""
    from transformers import AutoModelForCausalLM, Qwen2Config

    from recollect.models.attention import register

    torch.manual_seed(0)
    shape = {"vocab_size": 96, "hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 2}
    config = Qwen2Config(**shape, num_attention_heads=8, num_key_value_heads=2)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=register()).cuda().bfloat16()
    results = []
    for by_levels in (True, False):
        model.zero_grad()
        for packed in Batch.of(samples(3)).packs(range(16), 10_000):
            part = packed.to("cuda")
            assert part.plan.levels is not None
            part.plan.levels = part.plan.levels if by_levels else None
            logp, entropy = logprobs_and_entropy(model, part)
            (logp.sum() + entropy.sum()).backward()
        results.append(torch.cat([p.grad.float().flatten() for p in model.parameters()]))
    assert (results[0] - results[1]).norm() <= 2e-2 * results[1].norm()


def small_half(layers: int = 2) -> Any:
    """A model in bfloat16 with our attention, and with heads as wide as those of larger ones."""
    from transformers import AutoModelForCausalLM, Qwen2Config

    from recollect.models.attention import register

    torch.manual_seed(0)
    shape = {"vocab_size": 96, "hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": layers}
    config = Qwen2Config(**shape, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=8192)
    return AutoModelForCausalLM.from_config(config, attn_implementation=register()).cuda().bfloat16()


def long_tree(prefix: int, branches: list[int]) -> Any:
    """Branches of some lengths below one prefix, all of their tokens trained, as a micro-batch."""
    rng = np.random.default_rng(0)
    start = rng.integers(0, 96, prefix)
    rows = [np.concatenate([start, [i], rng.integers(0, 96, n - 1)]) for i, n in enumerate(branches)]
    masks = [np.arange(len(row)) >= prefix for row in rows]
    offsets = np.cumsum([0, *branches[:-1]]).tolist()
    return pack([build_tree(range(len(rows)), rows)], masks, offsets).to("cuda")


@pytest.mark.parametrize("cudnn", [True, False])
@pytest.mark.parametrize("shape", [(1500, [700, 300, 40]), (1024, [1024]), (2048, [512] * 4), (90, [1500, 1200, 7])])
def test_long_segments_by_calls_of_their_own_equal_levels(shape: Any, cudnn: bool, monkeypatch: Any) -> None:
    if cudnn and not dense.fast_blocks():
        pytest.skip("needs a GPU on which cuDNN is used")
    model, results = small_half(), []
    monkeypatch.setattr("recollect.packing.tree_attention.LONG", 1024)
    monkeypatch.setattr("recollect.packing.micro_batch.fast_blocks", lambda: False)
    plain = long_tree(*shape)
    assert not any(isinstance(part, Block) for part in plain.plan.levels)
    monkeypatch.setattr(dense, "fast_blocks", lambda: cudnn)
    monkeypatch.setattr("recollect.packing.micro_batch.fast_blocks", lambda: True)
    packed = long_tree(*shape)
    assert any(isinstance(part, Block) for part in packed.plan.levels)
    for part in (packed, plain):
        model.zero_grad()
        logp, entropy = logprobs_and_entropy(model, part)
        (logp.sum() + entropy.sum()).backward()
        results.append((logp.detach(), torch.cat([p.grad.float().flatten() for p in model.parameters()])))
    assert (results[0][0] - results[1][0]).abs().max() <= 0.05
    assert (results[0][1] - results[1][1]).norm() <= 2e-2 * results[1][1].norm()


def test_an_installed_kernel_is_in_place_and_gives_the_same(monkeypatch: Any) -> None:
    kernel = KERNELS.get(torch.cuda.get_device_capability()[0])
    if kernel is None or not is_installed(kernel.module):
        pytest.skip("no newer FlashAttention is installed")
    monkeypatch.setattr("recollect.packing.micro_batch.fast_blocks", lambda: False)
    model, packed, results = small_half(), long_tree(700, [300, 200, 40]), []
    for own in (False, True):
        model.zero_grad()
        logp, entropy = logprobs_and_entropy(model, packed)
        assert (current_flash_attention_impl() == kernel.key) != own
        (logp.sum() + entropy.sum()).backward()
        results.append((logp.detach(), torch.cat([p.grad.float().flatten() for p in model.parameters()])))
        restore_flash_attention_impl() if not own else activate_flash_attention_impl(kernel.key)
    assert (results[0][0] - results[1][0]).abs().max() <= 0.05
    assert (results[0][1] - results[1][1]).norm() <= 2e-2 * results[1][1].norm()


@pytest.mark.parametrize(("budget", "compiled"), [(200, False), (8192, False), (200, True)])
def test_half_precision_engine_equals_a_plain_forward(budget: int, compiled: bool) -> None:
    """Ends of prompts and beginnings in pieces go through one call; the log-probabilities say whether it is right.

    Compiled layers of the library are what models have that are too wide for our kernels.
    """
    model, plain = small_half(), small_half()
    rng = np.random.default_rng(1)
    start = rng.integers(0, 96, 700).tolist()
    prompts = [start + rng.integers(0, 96, n).tolist() for n in (1, 20, 300, 900)]
    prompts += [start[:400] + rng.integers(0, 96, 50).tolist(), *(rng.integers(0, 96, n).tolist() for n in (3, 1300))]
    there: Any = engine(model, True, max_batched_tokens=budget)
    assert there.backend.flash
    if compiled:
        there.backend.layers = None
        compile_layers(model)
    for _ in range(2):  # the second time prefixes are known
        for prompt, made in zip(prompts, run(there, prompts, seed=3, max_tokens=24), strict=True):
            ids = torch.tensor([*prompt, *made.ids]).cuda()
            packed = pack([build_tree([0], [ids.cpu().numpy()])], [np.arange(len(ids)) >= len(prompt)], [0]).to("cuda")
            with torch.no_grad():
                expected, _ = logprobs_and_entropy(plain, packed)
            torch.testing.assert_close(torch.tensor(made.logprobs), expected.float().cpu(), atol=0.05, rtol=0)


def test_long_prompts_under_a_graph_equal_a_plain_forward() -> None:
    """One at a time and two side by side, in sizes that share a graph."""
    model = small_half()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(6 if p.ndim > 1 else 1)  # so that a token depends on what is read
    rng = np.random.default_rng(2)
    there: Any = engine(model, True)
    for turn in range(24):
        lengths = [1100 + 7 * turn, 1200] if turn % 3 == 2 else [1100 + 7 * turn]
        prompts = [rng.integers(0, 96, n).tolist() for n in lengths]
        for prompt, made in zip(prompts, run(there, prompts, seed=turn, max_tokens=12), strict=True):
            ids = torch.tensor([*prompt, *made.ids]).cuda()
            packed = pack([build_tree([0], [ids.cpu().numpy()])], [np.arange(len(ids)) >= len(prompt)], [0]).to("cuda")
            with torch.no_grad():
                expected, _ = logprobs_and_entropy(model, packed)
            apart = (torch.tensor(made.logprobs) - expected.float().cpu()).abs()
            assert apart.max() < 0.4  # in half precision; without what is read they are apart by more than 1
            assert apart.mean() < 0.06
    assert set(there.backend.prefill_graphs) == {1280, 3072}
    there.free()
    assert not there.backend.prefill_graphs


def test_graphs_survive_a_cache_that_grows() -> None:
    """Longer rows make the cache anew and drop every graph; what follows is captured again."""
    _, ours = make_pair("Qwen3")
    there = engine(copy.deepcopy(ours).cuda(), True, max_rows=8)
    for length in (8, 250, 8, 400):
        prompts = [[3 + (i * step) % 80 for i in range(length)] for step in (1, 7)]
        expected = run(Engine(ours, decode=str), prompts, temperature=0.0)
        assert [d.ids for d in run(there, prompts, temperature=0.0)] == [d.ids for d in expected]
        there.free()
