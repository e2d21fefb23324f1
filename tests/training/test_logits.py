"""Log-probability and entropy in one pass over logits: on a GPU, or interpreted where triton is installed."""

from __future__ import annotations

import os

import pytest
import torch
from torch import Tensor

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
pytest.importorskip("triton")

from recollect.training.learner import logits
from recollect.training.learner.forward import Prediction, in_pieces

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def plainly(raw: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """The same as it is written in books."""
    logp = (raw / temperature).log_softmax(-1)
    return logp.gather(1, targets[:, None])[:, 0], -(logp.exp() * logp).sum(-1)


def errors(raw: Tensor, temperature: float) -> tuple[float, float]:
    """How far the logprob_entropy, at most, and their gradient, relative to it, are from those in float64."""
    targets = torch.randint(raw.shape[1], (len(raw),), device=raw.device)
    weights = torch.randn(2, len(raw), device=raw.device)
    ours, exact = raw.clone().requires_grad_(), raw.double().requires_grad_()
    made, expected = logits.logprob_entropy(ours, targets, temperature), plainly(exact, targets, temperature)
    assert all(one.dtype == torch.float32 for one in made)
    for found in (made, expected):
        sum((one * weight).sum() for one, weight in zip(found, weights, strict=True)).backward()
    assert ours.grad is not None
    assert exact.grad is not None
    assert ours.grad.dtype == raw.dtype
    with torch.no_grad():
        worst = [((one - other).abs() / (1 + other.abs())).max() for one, other in zip(made, expected, strict=True)]
    apart = float((ours.grad.double() - exact.grad).norm())
    return float(torch.stack(worst).max()), apart / float(exact.grad.norm()) if apart else 0.0


@pytest.mark.parametrize("size", [1, 5, 64, 200])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_figures_and_gradients_are_those_of_a_softmax(
    size: int, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logits, "BLOCK", 64)
    torch.manual_seed(size)
    for shift in (0.0, 100.0, -1e4):  # what all logits have in common costs no digits
        logprob_entropy, gradient = errors((4 * torch.randn(7, size) + shift).to(DEVICE), temperature)
        assert logprob_entropy <= 1e-5
        assert gradient <= 1e-4


def test_half_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logits, "BLOCK", 64)
    torch.manual_seed(0)
    logprob_entropy, gradient = errors((4 * torch.randn(9, 333, device=DEVICE)).bfloat16(), 0.8)
    assert logprob_entropy <= 1e-5
    assert gradient <= 8e-3  # interpreted, numbers are cut, not rounded


def test_rows_of_a_wider_matrix_and_no_rows_at_all() -> None:
    raw, targets = torch.randn(6, 40, device=DEVICE), torch.randint(20, (6,), device=DEVICE)
    for part in (raw[:, :20], raw[:, ::2], raw[::2, 3:23], raw.t()[:6, :6]):
        some = targets[: len(part)] % part.shape[1]
        for one, other in zip(logits.logprob_entropy(part, some, 1.0), plainly(part.double(), some, 1.0), strict=True):
            torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5)
    none = raw[:0].requires_grad_()
    found = logits.logprob_entropy(none, targets[:0], 1.0)
    found[0].sum().backward()
    assert found[1].shape == (0,)
    assert none.grad is not None
    assert none.grad.shape == (0, 40)


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")
def test_pieces_give_what_the_whole_gives() -> None:
    """Logits that are kept, and those that are computed again, in half precision."""
    torch.manual_seed(0)
    head = torch.nn.Linear(64, 9000, False, DEVICE, torch.bfloat16)
    start, targets = torch.randn(300, 64, device=DEVICE).bfloat16(), torch.randint(9000, (300,), device=DEVICE)
    found = []
    for rows in (300, 128):
        hidden = start.clone().requires_grad_()
        policy = Prediction(hidden, head, None)
        assert policy.at_once(9000) == 300
        made = in_pieces(policy, targets, rows, 0.9)
        (made.logprob - 0.1 * made.entropy).mean().backward()
        assert hidden.grad is not None
        found.append((made.logprob, made.entropy, hidden.grad.float()))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-4)
    with torch.no_grad():
        exact = plainly(head(start).double(), targets, 0.9)
    torch.testing.assert_close(found[0][0].double(), exact[0], rtol=1e-5, atol=1e-5)
