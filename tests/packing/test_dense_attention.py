"""Long sequences by cuDNN: what is padded, and that it is left alone where it computes something else.

The kernels themselves run on a GPU only (tests/engine/test_cuda.py); here plain functions stand in for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from recollect.packing import dense_attention as dense


def forward(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> tuple[Tensor, Tensor]:
    keys, values = (x.float().repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q.float(), keys) * scale
    if causal:
        scores = scores.masked_fill(~torch.ones(len(q), len(k)).tril().bool(), float("-inf"))
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), values), scores.logsumexp(-1)


def backward(kept: Sequence[Tensor], total: Tensor, scale: float, causal: bool) -> Any:
    leaves = [x.float().requires_grad_() for x in kept[1:4]]
    return torch.autograd.grad(forward(leaves[0], leaves[1], leaves[2], scale, causal)[0], leaves, kept[0].float())


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("flash", "_cudnn"):
        monkeypatch.setattr(dense, f"{kind}_forward", forward)
        monkeypatch.setattr(dense, f"{kind}_backward", backward)


def test_kernels_that_agree_are_used() -> None:
    assert dense.agrees("cpu")


@pytest.mark.parametrize("wrong", range(5))
def test_one_that_is_wrong_is_not(wrong: int, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil = lambda found, first: [x * 1.1 if first + i == wrong else x for i, x in enumerate(found)]
    monkeypatch.setattr(dense, "_cudnn_forward", lambda *given: spoil(forward(*given), 0))
    monkeypatch.setattr(dense, "_cudnn_backward", lambda *given: spoil(backward(*given), 2))
    assert not dense.agrees("cpu")


def test_one_that_fails_or_makes_no_numbers_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "_cudnn_backward", lambda *given: [x * float("nan") for x in backward(*given)])
    assert not dense.agrees("cpu")

    def fail(*given: Any) -> Any:
        raise RuntimeError("no plan")

    monkeypatch.setattr(dense, "_cudnn_forward", fail)
    assert not dense.agrees("cpu")


@pytest.mark.parametrize("length", [4096, 4097, 5000, 16384, 16385, 40000])
def test_lengths_are_few_and_little_longer(length: int) -> None:
    padded = dense.padded_length(length)
    assert length <= padded <= 1.5 * length
    assert dense.padded_length(padded) == padded


@pytest.mark.parametrize("causal", [True, False])
def test_padding_changes_nothing(causal: bool) -> None:
    torch.manual_seed(0)
    q, k = torch.randn(700, 4, 8), torch.randn(700 if causal else 600, 2, 8)
    v, grad = torch.randn_like(k), torch.randn_like(q)
    out, total = forward(q, k, v, 0.3, causal)
    (g, queries, o), (keys, values) = dense._padded([grad, q, out], [k, v], causal)
    assert queries.shape == (1, 4, 1024, 8)
    assert keys.shape[2] == (1024 if causal else 600)
    flat = [x[0].transpose(0, 1) for x in (g, queries, keys, values, o)]
    torch.testing.assert_close(forward(flat[1], flat[2], flat[3], 0.3, causal)[0][:700], out)
    found = backward(flat, total, 0.3, causal)
    for a, b in zip(found, backward((grad, q, k, v, out), total, 0.3, causal), strict=True):
        torch.testing.assert_close(a[: len(b)], b, atol=1e-5, rtol=1e-5)
        assert not a[len(b) :].any()
