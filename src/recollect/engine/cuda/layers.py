"""The layers of a model called by ourselves: decode of a few rows by matmuls.py, and prefill by elementwise.py.

It serves models of the usual form: norm and attention, norm and gated MLP, each added to its input. They are recognised
by structure, not by architecture, and a trial must give the library's numbers; any other model is left to the library.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.engine.cuda.elementwise import add_rms_norm, rms_norm, rope, silu_mul
from recollect.engine.cuda.fused_projections import FusedFirst
from recollect.engine.cuda.matmuls import (
    DOWN_TILE,
    FEW,
    FEW_DOWN_TILE,
    LEAST,
    OUT_TILE,
    NormWeight,
    gated_matmul,
    matmul_add,
    qkv_rope,
    start_rows,
)
from recollect.models.attention import AttentionPlan, RecordingPlan, Scoring, using, window_of
from recollect.packing.dense_attention import near

WIDEST = 2048  # products of a wider model take long enough by themselves
AGREED = {torch.float32: 1e-3, torch.bfloat16: 0.1, torch.float16: 0.1}  # how much a trial may differ, relatively
FORM = {
    "layer": {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"},
    "attention": {"q_proj", "k_proj", "v_proj", "o_proj"},
    "mlp": {"gate_proj", "up_proj", "down_proj", "act_fn"},
}


@dataclass(frozen=True)
class Layer:
    """What a layer computes with."""

    input_norm: NormWeight
    qkv: tuple[Tensor, Tensor | None]
    head_norms: tuple[NormWeight, NormWeight] | None
    scoring: Scoring
    out: tuple[Tensor, Tensor | None]
    post_norm: NormWeight
    gate_up: Tensor
    down: tuple[Tensor, Tensor | None]
    next_norm: NormWeight  # of the next layer, or the last norm


class Layers:
    """The forward passes of a model whose layers are the usual ones."""

    def __init__(self, model: Any) -> None:
        self.body, self.head = model.base_model, model.lm_head
        layers = list(self.body.layers)
        norms = [*(layer.input_layernorm for layer in layers[1:]), self.body.norm]
        self.layers = [_layer(layer, after) for layer, after in zip(layers, norms, strict=True)]
        attention = layers[0].self_attn
        self.dim = attention.head_dim
        self.heads = tuple(p.out_features // self.dim for p in (attention.q_proj, attention.k_proj))
        self.counts = torch.zeros(self.head.in_features // LEAST, dtype=torch.int32, device=self.head.weight.device)

    @staticmethod
    def of(model: Any) -> Layers | None:
        """The layers of a model, or None where it has another form or gives other numbers."""
        if not usual(model):
            return None
        made = Layers(model)
        return made if agrees(model, made) else None

    def decode(self, tokens: Tensor, positions: Tensor, plan: AttentionPlan) -> Tensor:
        """[rows, vocabulary] logits of one new token of each of at most `MOST_ROWS` rows."""
        down_tile = FEW_DOWN_TILE if len(tokens) <= FEW else DOWN_TILE
        embedded, cos_sin = self._embed(tokens, positions)
        rows = start_rows(embedded, self.layers[0].input_norm)
        for number, layer in enumerate(self.layers):
            made = qkv_rope(rows, *layer.qkv, cos_sin, (*self.heads, self.dim), layer.head_norms)
            seen = self._attend(number, layer, made, plan)
            rows = matmul_add(seen, *layer.out, rows, layer.post_norm, self.counts, OUT_TILE)
            rows = matmul_add(
                gated_matmul(rows, layer.gate_up), *layer.down, rows, layer.next_norm, self.counts, down_tile
            )
        return self.head(self.body.norm(rows.x))

    def prefill(self, tokens: Tensor, positions: Tensor, plan: AttentionPlan) -> Tensor:
        """[kept tokens, vocabulary] logits of any number of tokens."""
        x, cos_sin = self._embed(tokens, positions)
        rows = rms_norm(x, self.layers[0].input_norm)
        for number, layer in enumerate(self.layers):
            made = rope(F.linear(rows, *layer.qkv), cos_sin, (*self.heads, self.dim), layer.head_norms)
            seen = self._attend(number, layer, made.view(len(made), -1, self.dim), plan)
            if number == len(self.layers) - 1 and plan.keep is not None:  # nothing reads the others any more
                x, seen = x[plan.keep], seen[plan.keep]
                if not len(x):
                    return x.new_empty(0, self.head.out_features)
            x, rows = add_rms_norm(x, F.linear(seen, *layer.out), layer.post_norm)
            x, rows = add_rms_norm(x, F.linear(silu_mul(F.linear(rows, layer.gate_up)), *layer.down), layer.next_norm)
        return self.head(rows)

    def _embed(self, tokens: Tensor, positions: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        embedded = self.body.embed_tokens(tokens)
        cos, sin = self.body.rotary_emb(embedded, positions.unsqueeze(0))
        return embedded, (cos[0].contiguous(), sin[0].contiguous())

    def _attend(self, number: int, layer: Layer, made: Tensor, plan: AttentionPlan) -> Tensor:
        """What tokens see, [tokens, all heads]; ``made`` are their queries, keys and values [tokens, heads, dim]."""
        queries, keys = self.heads
        q, k, v = made.transpose(0, 1).split([queries, keys, keys])
        return plan.attend(number, q, k, v, layer.scoring).reshape(len(made), -1)


def _layer(layer: Any, after: Any) -> Layer:
    attention, mlp = layer.self_attn, layer.mlp
    return Layer(
        _norm(layer.input_layernorm),
        (attention.q_proj.fused_weight, attention.q_proj.fused_bias),
        (_norm(attention.q_norm), _norm(attention.k_norm)) if hasattr(attention, "q_norm") else None,
        Scoring(attention.scaling, window_of(attention)),
        (attention.o_proj.weight, attention.o_proj.bias),
        _norm(layer.post_attention_layernorm),
        mlp.gate_proj.fused_weight,
        (mlp.down_proj.weight, mlp.down_proj.bias),
        _norm(after),
    )


def _norm(module: Any) -> NormWeight:
    return NormWeight(module.weight, module.variance_epsilon)


def usual(model: Any) -> bool:
    """Whether a model has the form, and sizes that the kernels can take."""
    body: Any = getattr(model, "base_model", None)
    head = getattr(model, "lm_head", None)
    layers = getattr(body, "layers", None)
    if not layers or type(head) is not nn.Linear or head.in_features > WIDEST:
        return False
    if not all(hasattr(body, name) for name in ("embed_tokens", "rotary_emb", "norm")):
        return False
    return all(_usual_layer(layer) for layer in layers) and _is_norm(body.norm)


def _usual_layer(layer: Any) -> bool:
    names = lambda module: {name for name, _ in module.named_children()}
    if names(layer) != FORM["layer"]:
        return False
    attention, mlp = layer.self_attn, layer.mlp
    some = names(attention) - FORM["attention"]
    if some not in (set(), {"q_norm", "k_norm"}) or names(mlp) != FORM["mlp"]:
        return False
    norms = [layer.input_layernorm, layer.post_attention_layernorm, *(getattr(attention, name) for name in some)]
    firsts, plain = (attention.q_proj, mlp.gate_proj), (attention.o_proj, mlp.down_proj)
    if not all(map(_is_norm, norms)) or not all(type(p) is FusedFirst for p in firsts):
        return False
    half = getattr(attention, "head_dim", 0) // 2
    sizes = [half, *(n for p in (*firsts, *plain) for n in (p.in_features, p.out_features))]
    return (
        all(type(p) is nn.Linear for p in plain)
        and mlp.gate_proj.bias is None
        and all(size % LEAST == 0 and size > 0 for size in sizes)
        and (not some or half & (half - 1) == 0)
    )


def _is_norm(module: Any) -> bool:
    return type(module).__name__.endswith("RMSNorm") and hasattr(module, "variance_epsilon")


@torch.inference_mode()
def agrees(model: Any, made: Layers) -> bool:
    """Whether every layer asks its attention for what the library's asks for, and the logits are the same."""
    device = made.head.weight.device
    tokens, positions = (torch.tensor(x, device=device) for x in ([1, 2, 3, 4], [0, 7, 50, 400]))
    theirs, limit = RecordingPlan(len(tokens)), AGREED.get(model.dtype, 0.0)
    with using(theirs):
        expected = model(input_ids=tokens[None], position_ids=positions[None], use_cache=False).logits[0]
    for way in (made.decode, made.prefill):
        ours = RecordingPlan(len(tokens))
        try:
            found = way(tokens, positions, ours)
        except (AttributeError, TypeError, RuntimeError):  # it has another form after all
            return False
        pairs = zip([*ours.inputs, found], [*theirs.inputs, expected], strict=True)
        if ours.calls != theirs.calls or not all(near(a, b, limit) for a, b in pairs):
            return False
    return True
