"""Small parts of a model with gradients of their own, compiled (blocks.cpp).

With the operations of torch each is half a dozen passes over memory, and more for its gradient. `able` says where they
can be used; elsewhere callers have the operations of torch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from recollect.models.native.build import function

SOURCE = Path(__file__).with_name("blocks.cpp")
LANES = 16  # sizes must be multiples of this
WIDEST = 512  # numbers of an attention head, at most
PIECE_SCORES = 1 << 23  # attention scores that are computed at a time
KEPT_SCORES = 1 << 25  # of a call, up to which they are kept for the backward pass; more are computed again
_ARGUMENTS = {
    "norm": "pppiifi",
    "norm_back": "pppppiifi",
    "silu_mul": "ppii",
    "silu_mul_back": "pppii",
    "heads": "p",
    "heads_back": "p",
    "gather": "pppiiii",
    "scatter": "pppiiii",
    "scatter_add": "pppiiii",
    "causal_softmax": "ppiiiifi",
    "softmax_back": "ppiif",
    "logprob_entropy": "pppiif",
    "logprob_entropy_back": "ppppppiif",
    "sample_tokens": "pppppii",
}


def able(x: Tensor, size: int = LANES) -> bool:
    """True where these functions can take numbers of this kind, in rows of this size."""
    return size % LANES == 0 and _function("norm", x) is not None


def _function(name: str, x: Tensor) -> Any:
    return function(SOURCE, name, _ARGUMENTS[name], x.dtype, x.device.type)


def _run(name: str, kind: Tensor, *arguments: Any) -> None:
    """Call a function for numbers like those of ``kind``."""
    _function(name, kind)(*(a.data_ptr() if isinstance(a, Tensor) else a for a in arguments))


# ---- norms ----


class NormKind(NamedTuple):
    """x / rms(x) * weight; ``late``: the weight is 1 + weight, and the rounding comes after it."""

    eps: float
    late: int

    def __call__(self, x: Tensor, weight: Tensor) -> Tensor:
        return _Norm.apply(x, weight, self) if torch.is_grad_enabled() else _norm(x.contiguous(), weight, self)


def _norm(x: Tensor, weight: Tensor, kind: NormKind) -> Tensor:
    out, dim = torch.empty_like(x), x.shape[-1]
    _run("norm", x, x, weight, out, x.numel() // dim, dim, kind.eps, kind.late)
    return out


class _Norm(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, kind: NormKind) -> Tensor:
        x = x.contiguous()
        ctx.save_for_backward(x, weight)
        ctx.kind = kind
        return _norm(x, weight, kind)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        dim, to, sums = x.shape[-1], torch.empty_like(x), torch.empty(x.shape[-1])
        _run("norm_back", x, x, weight, grad.contiguous(), to, sums, x.numel() // dim, dim, ctx.kind.eps, ctx.kind.late)
        return to, sums.to(weight.dtype), None


# ---- gates ----


def silu_mul(both: Tensor) -> Tensor:
    """silu(gate) * up, of rows [gate, up]."""
    return _SiluMul.apply(both) if torch.is_grad_enabled() else _silu_mul(both)


def _silu_mul(both: Tensor) -> Tensor:
    out = both.new_empty(*both.shape[:-1], both.shape[-1] // 2)
    _run("silu_mul", both, both, out, out.numel() // out.shape[-1], out.shape[-1])
    return out


class _SiluMul(Function):
    @staticmethod
    def forward(ctx: Any, both: Tensor) -> Tensor:
        ctx.save_for_backward(both)
        return _silu_mul(both)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (both,) = ctx.saved_tensors
        to, dim = torch.empty_like(both), grad.shape[-1]
        _run("silu_mul_back", both, both, grad.contiguous(), to, grad.numel() // dim, dim)
        return to


# ---- heads ----


_POINTERS = "x cos sin q_weight k_weight q k v to q_sums k_sums"


class _Job(ctypes.Structure):  # mirrors Heads in blocks.cpp
    _fields_ = (
        [(n, ctypes.c_int64) for n in ("tokens", "heads", "kv", "dim", "late")]
        + [(n, ctypes.c_float) for n in ("eps", "unused")]
        + [(n, ctypes.c_void_p) for n in _POINTERS.split()]
    )


class Heads(NamedTuple):
    """How rows of queries, keys and values become heads: normed, if there is a norm, and rotated."""

    heads: int
    kv: int
    dim: int
    norm: NormKind | None

    def __call__(
        self, x: Tensor, cos: Tensor, sin: Tensor, q_weight: Tensor | None, k_weight: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """[tokens, (heads + 2 kv) dim] → queries, keys and values [tokens, heads or kv, dim]."""
        if torch.is_grad_enabled():
            return _Heads.apply(x, cos, sin, q_weight, k_weight, self)
        return self.made(x, cos, sin, q_weight, k_weight)

    def made(self, *inputs: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        x = inputs[0]
        assert x is not None
        q, k, v = (x.new_empty(len(x), n, self.dim) for n in (self.heads, self.kv, self.kv))
        self.run("heads", x, *inputs, q, k, v)
        return q, k, v

    def run(self, name: str, kind: Tensor, *tensors: Tensor | None) -> None:
        """Call a function with the pointers of a job, in its order."""
        eps, late = self.norm or (0.0, 0)
        pointers = (None if t is None else t.data_ptr() for t in tensors)
        job = _Job(len(kind), self.heads, self.kv, self.dim, late, eps, 0.0, *pointers)
        _function(name, kind)(ctypes.byref(job))


class _Heads(Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
        *tensors, ctx.heads = inputs
        ctx.save_for_backward(*tensors)
        return ctx.heads.made(*tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, cos, sin, q_weight, k_weight = ctx.saved_tensors
        to, sums = torch.empty_like(x), torch.empty(2, ctx.heads.dim)
        grads = tuple(g.contiguous() for g in grads)
        ctx.heads.run("heads_back", x, x, cos, sin, q_weight, k_weight, *grads, to, sums[0], sums[1])
        weights = (None if w is None else s.to(w.dtype) for w, s in zip((q_weight, k_weight), sums, strict=True))
        return to, None, None, *weights, None


# ---- predictions ----


def logprob_entropy(logits: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Of each row of logits the target's log-probability and the entropy, in float32."""
    return _LogprobEntropy.apply(logits.contiguous(), targets, 1 / temperature)


class _LogprobEntropy(Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, factor: float) -> tuple[Tensor, Tensor]:
        found = torch.empty(3, len(logits))
        _run("logprob_entropy", logits, logits, targets, found, *logits.shape, factor)
        ctx.save_for_backward(logits, targets, found)
        ctx.factor = factor
        return found[0].clone(), found[1].clone()

    @staticmethod
    def backward(ctx: Any, logprob: Tensor, entropy: Tensor) -> Any:
        logits, targets, found = ctx.saved_tensors
        to, grads = torch.empty_like(logits), (logprob.contiguous(), entropy.contiguous())
        _run("logprob_entropy_back", logits, logits, targets, found, *grads, to, *logits.shape, ctx.factor)
        return to, None, None


def sample_tokens(logits: Tensor, temperature: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """[rows] ids sampled at one number in (0, 1) each (temperature 0: greedy), and their log-probabilities."""
    logits, temperature, uniforms = logits.contiguous(), temperature.float(), uniforms.double()
    ids, logprobs = torch.empty(len(logits), dtype=torch.int64), torch.empty(len(logits))
    _run("sample_tokens", logits, logits, temperature, uniforms, ids, logprobs, *logits.shape)
    return ids, logprobs


# ---- attention within segments ----


class Segments(NamedTuple):
    """Runs of tokens, each with the keys it may see (packing/micro_batch.py); padding repeats a run's first place."""

    queries: Tensor  # [segments, n]
    keys: Tensor  # [segments, m]
    before: Tensor  # [segments] keys before the first query

    def parted(self, x: Tensor, index: Tensor) -> Tensor:
        """Flat [tokens, heads, dim] → [segments, heads, length, dim]."""
        segments, length = index.shape
        out = x.new_empty(segments, x.shape[1], length, x.shape[2])
        _run("gather", x, x, index, out, segments, length, x.shape[1], x.shape[2])
        return out

    def put(self, name: str, part: Tensor, index: Tensor, flat: Tensor) -> None:
        """The way back: ``scatter`` writes, ``scatter_add`` adds."""
        _run(name, part, part, index, flat, *index.shape, part.shape[1], part.shape[3])

    def scores(self, heads: int) -> int:
        """How many attention scores they have."""
        return self.queries.numel() * self.keys.shape[1] * heads

    def pieces(self, heads: int) -> Iterator[Segments]:
        """The same segments, as many at a time as have few scores; a long one comes in blocks of queries."""
        rows = PIECE_SCORES * len(self.before) // max(1, self.scores(heads))
        for i in range(0, len(self.before), max(1, rows)):
            some = Segments(*(x[i : i + max(1, rows)] for x in self))
            yield from (some,) if rows else some._blocks(heads)

    def _blocks(self, heads: int) -> Iterator[Segments]:
        """One segment in blocks of queries, each with the keys up to its last query."""
        start, before = int(self.queries[0, 0]), int(self.before[0])
        count = int((self.queries[0] == start + torch.arange(self.queries.shape[1])).sum())  # without padding
        step = max(1, PIECE_SCORES // ((before + count) * heads))
        for i in range(0, count, step):
            end = min(count, i + step)
            yield Segments(
                self.queries[:, i:end].contiguous(), self.keys[:, : before + end].contiguous(), self.before + i
            )


def segments_attention(
    q: Tensor, k: Tensor, v: Tensor, segments: list[Segments], scale: float, window: int | None
) -> Tensor:
    """Attention of flat queries, keys and values [tokens, heads or kv heads, dim], by plain products."""
    kind = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else v.dtype
    q, k, v = (x.to(kind).contiguous() for x in (q, k, v))
    pieces = [piece for s in segments for piece in s.pieces(q.shape[1])]
    return _Attention.apply(q, k, v, pieces, scale, window)


class _Attention(Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, pieces: list[Segments], scale: float, window: int | None
    ) -> Tensor:
        ctx.pieces, ctx.scale, ctx.window = pieces, scale, window
        ctx.keeps = sum(piece.scores(q.shape[1]) for piece in pieces) <= KEPT_SCORES
        out, kept = torch.empty_like(q), []
        for piece in pieces:
            parts = _attended(q, k, v, piece, scale, window)
            shape = len(piece.before), q.shape[1], -1, q.shape[2]
            piece.put("scatter", (parts[3] @ parts[2]).view(shape), piece.queries, out)
            if ctx.keeps:
                kept += parts
        ctx.save_for_backward(q, k, v, *kept)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        grad, (q, k, v, *kept) = grad.contiguous(), ctx.saved_tensors
        to_q, to_k, to_v = torch.empty_like(q), torch.zeros(k.shape), torch.zeros(k.shape)
        for i, s in enumerate(ctx.pieces):
            found = kept[4 * i : 4 * i + 4] if ctx.keeps else _attended(q, k, v, s, ctx.scale, ctx.window)
            query, key, value, weights = found
            part = s.parted(grad, s.queries).view(query.shape)
            scores = part @ value.transpose(1, 2)
            _run("softmax_back", grad, weights, scores, scores.shape[0] * scores.shape[1], scores.shape[2], ctx.scale)
            by_head = lambda x, heads, n=len(s.before): x.view(n, heads, -1, x.shape[2])
            s.put("scatter", by_head(scores @ key, q.shape[1]), s.queries, to_q)
            s.put("scatter_add", by_head(scores.transpose(1, 2) @ query, k.shape[1]), s.keys, to_k)
            s.put("scatter_add", by_head(weights.transpose(1, 2) @ part, k.shape[1]), s.keys, to_v)
        return to_q, to_k.to(grad.dtype), to_v.to(grad.dtype), None, None, None


def _attended(q: Tensor, k: Tensor, v: Tensor, s: Segments, scale: float, window: int | None) -> list[Tensor]:
    """Queries, keys, values and attention weights of segments, with the queries of one key head side by side."""
    parts = s.parted(q, s.queries), s.parted(k, s.keys), s.parted(v, s.keys)
    query, key, value = (x.view(len(x) * k.shape[1], -1, x.shape[3]) for x in parts)
    weights = query @ key.transpose(1, 2)
    n, m = s.queries.shape[1], s.keys.shape[1]
    _run("causal_softmax", q, weights, s.before, len(s.before), q.shape[1], n, m, scale, window or 0)
    return [query, key, value, weights]
