"""A forward pass of rows that decode, in one compiled call (decode.h).

In a small model most of a step's time is between operations. Where the layers of a model are the usual ones (norm and
attention, norm and gated MLP, each added to its input) and a trial with random weights gives the same numbers, the
whole pass is computed by a function of our own. Its weights are laid out anew after each update.
"""

from __future__ import annotations

import copy
import ctypes
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from recollect.engine.cpu.attention_kernel import SOURCE, Job, KernelRows, Queries, attention_function
from recollect.engine.flat_batch import StepPlan
from recollect.engine.kv_cache import KVCache
from recollect.models.attention import using, window_of
from recollect.models.native.blocks import LANES
from recollect.models.native.build import function
from recollect.models.native.modules import CompiledAttention, CompiledMlp, CompiledNorm, randomised
from recollect.models.text_config import text_config
from recollect.models.vision import sight_of, text_body

LARGEST = 150_000_000  # parameters; the steps of a larger model are not short
SMALL = 64_000_000  # parameters up to which a few rows are decoded here too
FEW = 8  # rows that one thread computes: in a larger model the library divides their products among all threads
_INTEGER, _FLOAT, _POINTER = ctypes.c_int64, ctypes.c_float, ctypes.c_void_p


class _Linear(ctypes.Structure):
    _fields_: ClassVar[Any] = [("in", _INTEGER), ("out", _INTEGER), ("weight", _POINTER), ("bias", _POINTER)]


class _Layer(ctypes.Structure):
    _fields_: ClassVar[Any] = (
        [(n, _POINTER) for n in ("input_norm", "post_norm", "q_norm", "k_norm")]
        + [(n, _Linear) for n in ("qkv", "o", "gate_up", "down")]
        + [("keys", _POINTER), ("values", _POINTER), ("window", _INTEGER), ("scale", _FLOAT), ("unused", _FLOAT)]
    )


class _Decode(ctypes.Structure):
    _fields_: ClassVar[Any] = (
        [(n, _INTEGER) for n in ("width", "inner", "layers", "late")]
        + [
            ("eps", _FLOAT),
            ("unused", _FLOAT),
            ("layer", ctypes.POINTER(_Layer)),
            ("norm", _POINTER),
            ("head", _Linear),
        ]
        + [(n, _POINTER) for n in ("x", "cos", "sin", "logits")]
        + [("job", ctypes.POINTER(Job))]
    )


def packed(*parts: nn.Linear) -> tuple[Tensor, Tensor | None]:
    """Weights of projections side by side as [outputs / 16, words, 16], a word being 32 bits, and their biases."""
    weight = torch.cat([p.weight.data for p in parts])
    bias = None if parts[0].bias is None else torch.cat([p.bias.data for p in parts])
    words = weight.view(torch.int32)
    return words.view(len(weight) // LANES, LANES, -1).transpose(1, 2).contiguous(), bias


class Decoder:
    """The compiled forward pass of a model whose layers are the usual ones."""

    def __init__(self, model: Any) -> None:
        self.model, self.body = model, text_body(model)
        self.layers = list(self.body.layers)
        norm = self.body.norm.kind
        self.heads = self.layers[0].self_attn.heads
        self.function: Any = function(SOURCE, "decode", "p", model.dtype, "cpu")
        self.job = _Decode(
            width=text_config(model).hidden_size,
            inner=self.layers[0].mlp.gate_proj.out_features,
            layers=len(self.layers),
            late=norm.late,
            eps=norm.eps,
        )
        self.least = 1 if sum(p.numel() for p in model.parameters()) <= SMALL else FEW + 1  # rows
        self.stale = True
        self._kept: list[Tensor] = []  # what the pointers point to

    @staticmethod
    def of(model: Any) -> Decoder | None:
        """The decoder of a model, or None where it has other layers or gives other numbers."""
        if attention_function(model.dtype) is None or not _usual(model) or not _equal(model):
            return None
        return Decoder(model)

    def __call__(self, tokens: Tensor, positions: Tensor, rows: KernelRows) -> Tensor:
        """[rows, vocabulary] logits of one new token of every row."""
        if self.stale:
            self._lay_out()
        x = self.body.embed_tokens(tokens)
        cos, sin = (t[0].contiguous() for t in self.body.rotary_emb(x, positions.unsqueeze(0)))
        heads, kv, dim, _ = self.heads
        logits = x.new_empty(len(x), self.job.head.out)
        q, k, v, out = (x.new_empty(len(x), n, dim) for n in (heads, kv, kv, heads))
        rows.bind(self.job.layer, (q, k, v, out))
        self.job.job = ctypes.pointer(rows.jobs[0][0])
        self.job.x, self.job.cos, self.job.sin = x.data_ptr(), cos.data_ptr(), sin.data_ptr()
        self.job.logits = logits.data_ptr()
        self.function(ctypes.byref(self.job))
        return logits

    def _lay_out(self) -> None:
        """Read the weights as they are now."""
        self._kept, self.stale = [], False
        self.job.layer = (_Layer * len(self.layers))(*map(self._layer, self.layers))
        self.job.norm, self.job.head = self.body.norm.weight.data_ptr(), self._linear(self.model.lm_head)

    def _layer(self, layer: Any) -> _Layer:
        attention, mlp = layer.self_attn, layer.mlp
        norms = (layer.input_layernorm, layer.post_attention_layernorm, *attention.head_norms)
        return _Layer(
            *(None if n is None else n.weight.data_ptr() for n in norms),
            self._linear(attention.q_proj, attention.k_proj, attention.v_proj),
            self._linear(attention.o_proj),
            self._linear(mlp.gate_proj, mlp.up_proj),
            self._linear(mlp.down_proj),
            window=window_of(attention) or 0,
            scale=attention.scaling,
        )

    def _linear(self, *parts: nn.Linear) -> _Linear:
        weight, bias = packed(*parts)
        self._kept += [weight] if bias is None else [weight, bias]
        size = sum(p.out_features for p in parts)
        return _Linear(parts[0].in_features, size, weight.data_ptr(), None if bias is None else bias.data_ptr())


def _usual(model: Any) -> bool:
    """Whether the model looks like one that we can compute."""
    body = text_body(model)
    layers, head = getattr(body, "layers", None), getattr(model, "lm_head", None)
    if not layers or not all(hasattr(body, n) for n in ("embed_tokens", "rotary_emb")) or type(head) is not nn.Linear:
        return False
    parts = [(y.self_attn, y.mlp) for y in layers if hasattr(y, "self_attn") and hasattr(y, "mlp")]
    if len(parts) < len(layers) or not all(
        isinstance(a, CompiledAttention) and isinstance(m, CompiledMlp) for a, m in parts
    ):
        return False
    linear = [
        n for a, m in parts for n in (a.q_proj, a.k_proj, a.v_proj, a.o_proj, m.gate_proj, m.up_proj, m.down_proj)
    ]
    norms = [m for m in body.modules() if type(m).__name__.endswith("RMSNorm")]
    return (
        all(type(p) is nn.Linear and not (p.in_features % LANES or p.out_features % LANES) for p in (*linear, head))
        and all(isinstance(n, CompiledNorm) for n in (*norms, getattr(body, "norm", None)))
        and len({n.kind for n in norms}) == 1
        and sum(p.numel() for p in model.parameters()) <= LARGEST
    )


def _beginning(model: Any) -> Any:
    """The model with its first two layers, or as many as there are kinds of them, sharing all else."""
    if sight_of(model) is not None:  # its parts hold each other by more than their names
        return model
    body = text_body(model)
    kinds = [(window_of(y.self_attn), y.self_attn.scaling, y.mlp.gate_proj.out_features) for y in body.layers]
    count = max(2, *(kinds.index(kind) + 1 for kind in kinds))
    path = next(name for name, module in model.named_modules() if module is body)
    made = at = _copy(model)
    for name in filter(None, path.split(".")):
        at._modules[name] = _copy(at._modules[name])
        at = at._modules[name]
    at._modules["layers"] = nn.ModuleList(list(body.layers)[:count])
    return made


def _copy(module: Any) -> Any:
    """A module with the same parameters and parts, which may be exchanged."""
    made = copy.copy(module)
    made._modules = dict(module._modules)
    return made


@torch.inference_mode()
def _equal(model: Any) -> bool:
    """Whether ours gives what the model gives, in float32 and with random weights."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        tried = randomised(_beginning(model)).eval()
    layers = text_body(tried).layers
    heads = layers[0].self_attn.heads
    cache, count = KVCache(len(layers), heads.kv, heads.dim, torch.float32, torch.device("cpu")), 3
    cache.ensure(count, 1, 0)
    each, none = np.arange(count), np.zeros(count, np.int64)
    queries = Queries(each, each, none, np.arange(count + 1), none, none)
    rows = KernelRows(attention_function(torch.float32), cache, queries, queries, 0, none, each)
    tokens, positions = torch.arange(count), torch.tensor([0, 7, 50])
    try:
        with using(StepPlan([(rows, count)], cache.layers, None)):
            expected = tried(input_ids=tokens[None], position_ids=positions[None], use_cache=False).logits[0]
        torch.testing.assert_close(Decoder(tried)(tokens, positions, rows), expected, atol=1e-4, rtol=1e-4)
    except (AttributeError, TypeError, RuntimeError, AssertionError):  # it has another form, or other numbers
        return False
    return True
