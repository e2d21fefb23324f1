"""The same engine and learner on a GPU: equal to the library there, and to the CPU."""

from __future__ import annotations

import copy

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


@pytest.mark.parametrize("kind", ARCHITECTURES)
@pytest.mark.parametrize("case", CASES)
def test_greedy_on_the_gpu_equals_the_cpu(kind: str, case: str) -> None:
    _, ours = make_pair(kind)
    prompts = CASES[case]()
    expected = run(Engine(ours, decode=str, max_batched_tokens=128), prompts, temperature=0.0)
    found = run(Engine(copy.deepcopy(ours).cuda(), decode=str, max_batched_tokens=128), prompts, temperature=0.0)
    for a, b in zip(expected, found, strict=True):
        assert a.ids == b.ids
        torch.testing.assert_close(torch.tensor(a.logprobs), torch.tensor(b.logprobs), atol=1e-3, rtol=0)


def test_samples_on_the_gpu_equal_the_cpu() -> None:
    _, ours = make_pair("Qwen3")
    prompts = CASES["shared beginning"]()
    expected = run(Engine(ours, decode=str), prompts, seed=5)
    found = run(Engine(copy.deepcopy(ours).cuda(), decode=str), prompts, seed=5)
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
