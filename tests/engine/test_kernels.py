"""The GPU's kernels against the plain functions that they equal: on a GPU, or interpreted where triton is there."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
pytest.importorskip("triton")

from recollect.engine.cuda.device_rows import NUMBERS
from recollect.engine.cuda.elementwise import add_rms_norm, rms_norm, rope, silu_mul
from recollect.engine.cuda.matmuls import NormWeight, gated_matmul, qkv_rope, start_rows
from recollect.engine.cuda.sampling_kernels import SHIFT, sample_and_advance
from recollect.engine.noise import uniform
from recollect.engine.sampling import sample
from recollect.packing.merge_attention import merge_kernel
from recollect.packing.tree_attention import merge

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
EPS = 1e-5


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def plain_norm(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * weight


def plain_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """[tokens, heads, dim] as the library does it."""
    one, two = x.chunk(2, -1)
    return x * cos[:, None] + torch.cat([-two, one], -1) * sin[:, None]


def near(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_rms_norm() -> None:
    x, more, weight = numbers(5, 48), numbers(5, 48, seed=1), numbers(48, seed=2)
    near(rms_norm(x, NormWeight(weight, EPS)), plain_norm(x, weight))
    total, out = add_rms_norm(x, more, NormWeight(weight, EPS))
    near(total, x + more)
    near(out, plain_norm(x + more, weight))


def test_silu_mul() -> None:
    x = numbers(3, 2 * 1500)
    near(silu_mul(x), F.silu(x[:, :1500]) * x[:, 1500:])


@pytest.mark.parametrize("normed", [True, False])
def test_rope(normed: bool) -> None:
    queries, keys, dim, tokens = 4, 2, 32, 7
    x, cos, sin = (
        numbers(tokens, (queries + 2 * keys) * dim),
        numbers(tokens, dim, seed=1),
        numbers(tokens, dim, seed=2),
    )
    cos, sin = (torch.cat([t[:, :16], t[:, :16]], -1) for t in (cos, sin))  # both halves have one angle
    weights = numbers(dim, seed=3), numbers(dim, seed=4)
    q, k, v = x.view(tokens, -1, dim).split([queries, keys, keys], 1)
    if normed:
        q, k = plain_norm(q, weights[0]), plain_norm(k, weights[1])
    expected = torch.cat([plain_rope(q, cos, sin), plain_rope(k, cos, sin), v], 1)
    norms = (NormWeight(weights[0], EPS), NormWeight(weights[1], EPS)) if normed else None
    near(rope(x.clone(), (cos, sin), (queries, keys, dim), norms).view(tokens, -1, dim), expected)


@pytest.mark.parametrize("normed", [True, False])
def test_norm_qkv_and_rope_in_one_product(normed: bool) -> None:
    queries, keys, dim, width, rows = 4, 2, 32, 64, 5
    x, weight, bias = numbers(rows, width), numbers((queries + 2 * keys) * dim, width, seed=1), numbers(256, seed=2)
    angles = numbers(rows, dim // 2, seed=3).repeat(1, 2)
    norm, weights = numbers(width, seed=4), (numbers(dim, seed=5), numbers(dim, seed=6))
    made = F.linear(plain_norm(x, norm), weight, bias).view(rows, -1, dim)
    q, k, v = made.split([queries, keys, keys], 1)
    if normed:
        q, k = plain_norm(q, weights[0]), plain_norm(k, weights[1])
    expected = torch.cat([plain_rope(q, angles.cos(), angles.sin()), plain_rope(k, angles.cos(), angles.sin()), v], 1)
    norms = (NormWeight(weights[0], EPS), NormWeight(weights[1], EPS)) if normed else None
    residual = start_rows(x, NormWeight(norm, EPS))
    near(qkv_rope(residual, weight, bias, (angles.cos(), angles.sin()), (queries, keys, dim), norms), expected)


def test_norm_and_gate_in_one_product() -> None:
    x, weight, norm = numbers(5, 64), numbers(2 * 96, 64, seed=1), numbers(64, seed=2)
    both = F.linear(plain_norm(x, norm), weight)
    near(gated_matmul(start_rows(x, NormWeight(norm, EPS)), weight), F.silu(both[:, :96]) * both[:, 96:])


@pytest.mark.parametrize("vocabulary", [7, 5000])
def test_sampling_and_the_next_state_of_rows(vocabulary: int) -> None:
    rows = 6
    logits = 4 * numbers(rows, vocabulary)
    temperature = torch.tensor([1.0, 0.7, 0.0, 1.3, 1.0, 1.0], dtype=torch.float64, device=DEVICE)
    state = {name: torch.zeros(rows, dtype=torch.int64, device=DEVICE) for name in NUMBERS}
    state["noise"] += torch.arange(rows, device=DEVICE) * 977
    state["count"] += 3
    state["limit"] += 9
    state["limit"][3] = 4
    state["ended"][4] = 1
    uniforms = uniform(state["noise"], state["count"])
    none: Any = (torch.ones(rows, device=DEVICE).double(), torch.zeros(rows, dtype=torch.int64, device=DEVICE))
    expected, logprobs = sample(logits, temperature.float(), *none, uniforms, True)
    stops = torch.full((rows, 8), -1, dtype=torch.int64, device=DEVICE)
    stops[0, 2] = expected[0]
    results, found = torch.zeros(rows, dtype=torch.int64, device=DEVICE), torch.zeros(rows, device=DEVICE)
    sample_and_advance(logits, temperature, state, stops, results, found)
    going = torch.tensor([0, 1, 2, 3, 5], device=DEVICE)
    end = torch.tensor([1, 0, 0, 2, 1, 0], device=DEVICE)
    assert torch.equal(results[going], (expected + (end << SHIFT))[going])
    near(found[going], logprobs[going])
    assert state["ended"].tolist() == end.tolist()
    assert state["count"].tolist() == [4, 4, 4, 4, 3, 4]
    assert state["position"].tolist() == state["own"].tolist() == [1, 1, 1, 1, 0, 1]
    assert results[4] == 0  # a row that has ended stands still


@pytest.mark.parametrize("some", [True, False])
def test_two_parts_of_an_attention_merged(some: bool) -> None:
    tokens, heads, dim = 40, 3, 24
    out, total = numbers(tokens, heads, dim), numbers(heads, tokens, seed=1)
    place = torch.tensor([0, 5, 7, 39, 20], device=DEVICE) if some else None
    n = tokens if place is None else len(place)
    part, weight = numbers(n, heads, dim, seed=2), numbers(heads, n, seed=3)
    expected, expected_total = out.cpu(), total.cpu()
    merge(expected, expected_total, part.cpu(), weight.cpu(), None if place is None else place.cpu())
    merge_kernel(out, total, part, weight, place)
    near(out.cpu(), expected)
    near(total.cpu(), expected_total)
