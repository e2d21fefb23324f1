"""The same engine and learner on a GPU: equal to the library there, and to the CPU."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from recollect.algos.batch import Batch
from recollect.policies.engine import Engine
from recollect.train.forward import logprobs_and_entropy
from tests.algos.test_loss_invariance import samples
from tests.conftest import ARCHITECTURES, make_pair
from tests.policies.test_engine import CASES, run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def engine(model: Any, graphs: bool, **more: Any) -> Engine:
    """An engine on the GPU, with or without CUDA graphs."""
    if not graphs:
        return Engine(model, decode=str, **more)
    from recollect.policies.engine.cuda.engine import CudaEngine
    from recollect.policies.engine.cuda.prepare import fuse

    fuse(model)
    return CudaEngine(model, decode=str, **more)


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


def test_graphs_survive_a_cache_that_grows() -> None:
    """Longer rows make the cache anew and drop every graph; what follows is captured again."""
    _, ours = make_pair("Qwen3")
    there = engine(copy.deepcopy(ours).cuda(), True, max_rows=8)
    for length in (8, 250, 8, 400):
        prompts = [[3 + (i * step) % 80 for i in range(length)] for step in (1, 7)]
        expected = run(Engine(ours, decode=str), prompts, temperature=0.0)
        assert [d.ids for d in run(there, prompts, temperature=0.0)] == [d.ids for d in expected]
        there.free()
