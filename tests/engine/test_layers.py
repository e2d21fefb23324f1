"""The decode pass in products of our own, against the library: on a GPU, or interpreted where triton is installed."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
pytest.importorskip("triton")

from recollect.engine.cuda import layers
from recollect.engine.cuda.elementwise import store_kv
from recollect.engine.cuda.fused_projections import fuse
from recollect.engine.cuda.matmuls import NormWeight, Tile, matmul_add, start_rows
from recollect.models.attention import RecordingPlan, register, using

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WIDE = {
    "vocab_size": 96,
    "hidden_size": 128,
    "intermediate_size": 576,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
}
USUAL: dict[str, dict[str, Any]] = {
    "Qwen2": {},
    "Qwen3": {"head_dim": 64},
    "Llama": {"attention_bias": True, "mlp_bias": False},
    "Mistral": {"sliding_window": 24},
}
OTHERS: dict[str, dict[str, Any]] = {
    "Gemma": {"head_dim": 32},
    "Gemma2": {"head_dim": 32},
    "Granite": {"residual_multiplier": 0.5},
    "Llama": {"mlp_bias": True},
    "Qwen2": {"hidden_act": "gelu"},
}


def make(kind: str, **more: Any) -> Any:
    """A model of an architecture with random weights, its projections fused."""
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**{**WIDE, **more})
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=register()).float().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.3 * torch.randn_like(p) + 1 if p.ndim == 1 else 0.1 * torch.randn_like(p))
    fuse(model.to(DEVICE))
    return model


@pytest.mark.parametrize(
    ("way", "rows"), [("decode", 1), ("decode", 17), ("decode", 64), ("prefill", 1), ("prefill", 150)]
)
@pytest.mark.parametrize("kind", USUAL)
@torch.inference_mode()
def test_usual_models_give_the_numbers_of_the_library(kind: str, way: str, rows: int) -> None:
    model = make(kind, **USUAL[kind])
    made = layers.Layers.of(model)
    assert made is not None
    tokens, positions = (torch.arange(rows, device=DEVICE) * step % 96 for step in (5, 7))
    theirs, ours = RecordingPlan(rows), RecordingPlan(rows)
    with using(theirs):
        expected = model(input_ids=tokens[None], position_ids=positions[None], use_cache=False).logits[0]
    found = getattr(made, way)(tokens, positions, ours)
    assert ours.calls == theirs.calls
    for a, b in zip([*ours.inputs, found], [*theirs.inputs, expected], strict=True):
        torch.testing.assert_close(a, b, atol=2e-3, rtol=1e-3)
    assert not made.counts.any()


@pytest.mark.parametrize("keep", [[], [3], [0, 1, 7]])
@torch.inference_mode()
def test_only_what_is_kept_goes_through_all_of_the_last_layer(keep: list[int]) -> None:
    model = make("Qwen3", head_dim=64)
    made = layers.Layers.of(model)
    assert made is not None
    tokens = torch.arange(8, device=DEVICE)
    some, every = RecordingPlan(8), RecordingPlan(8)
    some.keep = torch.tensor(keep, dtype=torch.int64, device=DEVICE)
    found = made.prefill(tokens, tokens, some)
    torch.testing.assert_close(found, made.prefill(tokens, tokens, every)[keep])
    assert all(torch.equal(a, b) for a, b in zip(some.inputs, every.inputs, strict=True))


@pytest.mark.parametrize("kind", OTHERS)
def test_other_models_are_left_to_the_library(kind: str) -> None:
    assert layers.Layers.of(make(kind, **OTHERS[kind])) is None


@pytest.mark.parametrize("tile", [Tile(16, 16), Tile(32, 64, 2), Tile(16, 16, 5), Tile(64, 32, 99)])
def test_rows_are_added_up_however_a_product_is_cut(tile: Tile) -> None:
    torch.manual_seed(1)
    x, before, weight, norm = (torch.randn(*s, device=DEVICE) for s in ((5, 192), (5, 96), (96, 192), (96,)))
    rows, counts = start_rows(before, NormWeight(norm, 1e-6)), torch.zeros(6, dtype=torch.int32, device=DEVICE)
    for _ in range(2):  # the counts are as they were
        made = matmul_add(x, weight, None, rows, NormWeight(norm, 1e-6), counts, tile)
        expected = before + x @ weight.t()
        torch.testing.assert_close(made.x, expected, atol=1e-3, rtol=1e-4)
        torch.testing.assert_close(made.weighed, expected * norm, atol=1e-3, rtol=1e-4)
        torch.testing.assert_close(made.squares.sum(1), expected.square().sum(1), atol=1e-2, rtol=1e-4)
        assert not counts.any()


def test_keys_and_values_go_to_each_tokens_place() -> None:
    layers_, heads, dim, room = 2, 3, 24, 32
    slots = torch.zeros(layers_, 2, 4, heads, room, dim, device=DEVICE)
    prefix = torch.zeros(layers_, 2, heads, 2 * room, dim, device=DEVICE)
    torch.manual_seed(0)
    made = torch.randn(2, heads, 21, dim, device=DEVICE)
    k, v = (x.transpose(0, 1) for x in made)
    row, start = slots[0, 0, 2].data_ptr(), prefix.data_ptr() + 40 * dim * prefix.itemsize  # tokens 0– of slot 2, 40–
    places = [[row + i * dim * 4, room * dim, 4 * heads * room * dim] for i in range(6)]
    places += [[start + i * dim * 4, 2 * room * dim, heads * 2 * room * dim] for i in range(15)]
    store_kv(k, v, torch.tensor(places, device=DEVICE).t().contiguous(), 1)
    assert torch.equal(slots[1, :, 2, :, :6], made[:, :, :6])
    assert torch.equal(prefix[1, :, :, 40:55], made[:, :, 6:])
    assert slots.count_nonzero() == slots[1, :, 2, :, :6].count_nonzero()
    assert prefix.count_nonzero() == prefix[1, :, :, 40:55].count_nonzero()
