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
from recollect.engine.cuda.row_kernels import take_rows
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
    order = torch.tensor([5, 0, 3, 1, 2, 7], device=DEVICE)  # slots of the rows
    kept = {name: torch.full((9,), -7, dtype=torch.int64, device=DEVICE) for name in NUMBERS}
    results, found = torch.zeros(8, dtype=torch.int64, device=DEVICE), torch.zeros(8, device=DEVICE).double()
    told, seen = torch.tensor([4], device=DEVICE), torch.tensor([3], device=DEVICE)
    sample_and_advance(logits, temperature, state, stops, order, kept, results, found, told, seen)
    going = torch.tensor([0, 1, 2, 3, 5], device=DEVICE)
    slots, end = order[going], torch.tensor([1, 0, 0, 2, 0], device=DEVICE)
    assert torch.equal(results[slots], expected[going] + (end << SHIFT))
    near(found[slots].float(), logprobs[going])
    assert torch.equal(kept["token"][slots], expected[going])
    assert torch.equal(kept["ended"][slots], end)
    for name, value in (("count", 4), ("position", 1), ("own", 1)):
        assert set(kept[name][slots].tolist()) == {value}
    for name in NUMBERS:  # a row that has ended stands still, and slots of nobody are left alone
        assert kept[name][[2, 4, 6, 8]].tolist() == [-7] * 4
    assert not results[[2, 4, 6]].any()
    assert int(seen) == 4


@pytest.mark.parametrize("again", [False, True])
def test_new_rows_take_what_the_host_says_once(again: bool) -> None:
    size, count = 8, len(NUMBERS)
    draw = lambda *shape: torch.randint(0, 99, shape, device=DEVICE)
    order = torch.tensor([3, 6, 0, 8, 8, 8, 8, 8], device=DEVICE)  # slots; 8 is nobody's
    fresh = torch.tensor([0, 1, 1, 0, 0, 0, 0, 0], device=DEVICE)
    serial, seen = torch.tensor([5], device=DEVICE), torch.tensor([5 if again else 4], device=DEVICE)
    given = draw(count, size), draw(2, size).double(), draw(size, 4)
    kept = draw(count, size + 1), draw(2, size + 1).double(), draw(size + 1, 4)
    before = [x.clone() for x in kept]
    made = draw(count, size), draw(2, size).double(), draw(size, 4)
    take_rows(4, order, fresh, serial, seen, given, kept, made)
    expected = [x.clone() for x in before]
    if not again:
        rows, slots = torch.tensor([1, 2], device=DEVICE), torch.tensor([6, 0], device=DEVICE)
        expected[0][:, slots], expected[1][:, slots] = given[0][:, rows], given[1][:, rows]
        expected[2][slots] = given[2][rows]
    for found, wanted in zip(kept, expected, strict=True):
        assert torch.equal(found, wanted)
    assert torch.equal(made[0][:, :4], expected[0][:, order[:4]])
    assert torch.equal(made[1][:, :4], expected[1][:, order[:4]])
    assert torch.equal(made[2][:4], expected[2][order[:4]])


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
