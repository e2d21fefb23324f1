"""Compiled functions give what the operations of torch give, and the same gradients."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

from recollect.models.attention import Scoring, register
from recollect.models.native import blocks
from recollect.models.native.modules import CompiledNorm, replace_modules
from recollect.packing import micro_batch as packing
from recollect.packing.micro_batch import pack
from recollect.packing.tree import build_tree
from recollect.training.learner import forward

pytestmark = pytest.mark.skipif(not blocks.able(torch.empty(0)), reason="there is no compiler here")
SIZES: dict[str, Any] = {
    "vocab_size": 112,
    "hidden_size": 64,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
}
CONFIGS = {
    "Qwen2": lambda: Qwen2Config(**SIZES),
    "Qwen3": lambda: Qwen3Config(**SIZES),
    "Llama": lambda: LlamaConfig(**SIZES),
    "Mistral": lambda: MistralConfig(**SIZES, sliding_window=9),
}


def make_model(kind: str) -> Any:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIGS[kind](), attn_implementation=register())
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.1)
    return model


def trees(seed: int) -> packing.Packed:
    """Two trees with branches and a sequence by itself."""
    rng = np.random.default_rng(seed)
    draw = lambda n: rng.integers(3, 96, n)
    one, two = draw(int(rng.integers(26, 50))), draw(30)
    rows = [np.r_[one, draw(int(n))] for n in rng.integers(1, 20, 3)]
    rows += [np.r_[two, draw(3)], np.r_[two, draw(9)], draw(int(rng.integers(2, 20)))]
    made = [build_tree([0, 1, 2], rows[:3]), build_tree([3, 4], rows[3:5]), build_tree([5], rows[5:])]
    starts = np.cumsum([0] + [len(r) - 1 for r in rows])
    return pack(made, [np.arange(len(r)) > 0 for r in rows], starts[:-1].tolist())


def values_and_gradient(model: Any, packed: packing.Packed) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities and entropies, and the gradient of a sum that reads both."""
    model.zero_grad()
    logprob, entropy = forward.logprobs_and_entropy(model, packed, 0.7)
    (logprob * torch.linspace(-1, 1, len(logprob)) + 0.3 * entropy).sum().backward()
    found = torch.cat([p.grad.flatten().float() for p in model.parameters()])
    return torch.stack([logprob, entropy]).detach(), found


@pytest.fixture
def by_torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Computes as if there were no compiler."""

    def compute(model: Any, packed: packing.Packed) -> Any:
        with monkeypatch.context() as m:
            for module in (packing, forward):
                m.setattr(module, "able", lambda *args: False)
            return values_and_gradient(model, packed)

    return compute


@pytest.mark.parametrize("kind", CONFIGS)
def test_gradients_equal_those_of_torch(kind: str, by_torch: Any) -> None:
    plain = make_model(kind)
    ours = copy.deepcopy(plain)
    replace_modules(ours)
    assert type(ours.model.layers[0].self_attn) is not type(plain.model.layers[0].self_attn)
    for seed in range(3):
        (values, gradient), (expected, wanted) = values_and_gradient(ours, trees(seed)), by_torch(plain, trees(seed))
        torch.testing.assert_close(values, expected, atol=2e-5, rtol=1e-5)
        assert (gradient - wanted).norm() < 1e-5 * wanted.norm()


def test_bfloat16_is_as_near_to_float32_as_with_torch(by_torch: Any) -> None:
    exact = make_model("Qwen3")
    half = copy.deepcopy(exact).bfloat16()
    ours = copy.deepcopy(half)
    replace_modules(ours)
    _, wanted = by_torch(exact, trees(0))
    _, far = by_torch(half, trees(0))
    _, near = values_and_gradient(ours, trees(0))
    assert (near - wanted).norm() < 1.2 * (far - wanted).norm()


def test_autocast_computes_in_bfloat16(by_torch: Any) -> None:
    plain = make_model("Qwen3")
    ours = copy.deepcopy(plain)
    replace_modules(ours)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (values, gradient), (expected, wanted) = values_and_gradient(ours, trees(0)), by_torch(plain, trees(0))
    torch.testing.assert_close(values, expected, atol=0.1, rtol=0)
    assert (gradient - wanted).norm() < 0.05 * wanted.norm()


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 9), st.integers(1, 70), st.sampled_from([0.5, 1.0]), st.integers(0, 1000))
def test_figures_for_any_size(rows: int, vocabulary: int, temperature: float, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    logits = (torch.randn(rows, vocabulary, generator=rng) * 5).requires_grad_()
    exact = (logits.double() / temperature).log_softmax(-1)
    targets = torch.randint(vocabulary, (rows,), generator=rng)
    found = blocks.logprob_entropy(logits, targets, temperature)
    expected = exact.gather(-1, targets[:, None])[:, 0], -(exact.exp() * exact).sum(-1)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs.float(), atol=2e-5, rtol=1e-5)
        (got,), (want,) = (torch.autograd.grad(x.sum(), logits, retain_graph=True) for x in (ours, theirs))
        torch.testing.assert_close(got, want, atol=5e-5, rtol=1e-4)


def test_weights_that_move_are_read_where_they_are() -> None:
    ours = make_model("Qwen2")
    replace_modules(ours)
    mlp, x = ours.model.layers[0].mlp, torch.randn(1, 3, 64)
    with torch.no_grad():
        before = mlp(x)
        mlp.up_proj.weight.mul_(2)  # in place: still side by side
        torch.testing.assert_close(mlp(x), 2 * before)
        for part in (mlp.gate_proj, mlp.up_proj):
            part.weight.data = part.weight.data.clone()
        mlp.up_proj.weight.div_(2)
        torch.testing.assert_close(mlp(x), before)


def test_trying_modules_changes_no_random_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither this device's nor those of others, which nobody would put back."""
    model, seeded = make_model("Qwen3"), []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    before = torch.get_rng_state()
    replace_modules(model)
    assert any(isinstance(m, CompiledNorm) for m in model.modules())
    assert torch.equal(torch.get_rng_state(), before)
    assert seeded == []


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**31), piece=st.sampled_from([1, 60, 700]), kept=st.sampled_from([0, 1 << 25]))
@pytest.mark.parametrize("window", [None, 7])
def test_attention_in_pieces_is_that_of_whole_segments(window: int | None, seed: int, piece: int, kept: int) -> None:
    """Pieces of any size, with scores that are kept or computed again, are what torch's own attention computes."""
    plan, heads = trees(seed).plan, (4, 2, 2)
    torch.manual_seed(seed)
    given = [torch.randn(h, plan.total, 32, requires_grad=True) for h in heads]
    toward = torch.randn(plan.total, 4, 32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "PIECE_SCORES", piece)
        patch.setattr(blocks, "KEPT_SCORES", kept)
        out = plan.attend(0, *given, Scoring(0.2, window))
        found = torch.autograd.grad(out, given, toward)
        patch.setattr(packing, "able", lambda *_: False)
        expected = plan.attend(0, *given, Scoring(0.2, window))
        gradients = torch.autograd.grad(expected, given, toward)
    torch.testing.assert_close(out, expected, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(found, gradients, atol=5e-5, rtol=1e-4)


def test_a_long_segment_comes_in_blocks_of_its_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    """No piece has more scores than it may, and together they have every query once."""
    monkeypatch.setattr(blocks, "PIECE_SCORES", 400)
    segment = blocks.Segments(torch.arange(50)[None], torch.arange(50)[None], torch.zeros(1, dtype=torch.int64))
    pieces = list(segment.pieces(2))
    assert all(piece.scores(2) <= 400 for piece in pieces)
    assert torch.cat([piece.queries[0] for piece in pieces]).tolist() == list(range(50))
