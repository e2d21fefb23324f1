"""Modules of the library, computed by compiled functions where a trial proves that the result is the same.

A norm, a gate or the heads of an attention are half a dozen operations each, whose overheads and passes over memory add
up in a small model. A module that looks like one of the known kinds is tried against ours with random weights; only
equal ones are replaced, by a subclass that still is the library's module. Projections of one input are one product.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.models.attention import RecordingPlan, Scoring, active, using, window_of
from recollect.models.native.blocks import LANES, WIDEST, Heads, NormKind, able, silu_mul


def replace_modules(model: nn.Module) -> None:
    """Let the norms, gated MLPs and attentions of a model on a CPU use compiled functions."""
    tried: dict[Any, bool] = {}  # a layer's modules are as those of the layer before

    def same(module: nn.Module, kind: Any) -> bool:
        form = kind, _form(module)
        if form not in tried:
            tried[form] = _equal(module, kind)
        return tried[form]

    for kinds in ((CompiledNorm, CompiledLateNorm, CompiledMlp), (CompiledAttention,)):  # an attention has norms inside
        for module in model.modules():
            for kind in kinds:
                if kind.fits(module) and not isinstance(module, _CompiledModule) and same(module, kind):
                    module.__class__ = _subclass(kind, type(module))
                    break
    for module in model.modules():
        if isinstance(module, _CompiledModule):
            _lay_out(module)


class _CompiledModule:
    """Marks a replaced module; ``siblings`` are projections that are called with one input."""

    siblings: tuple[str, ...] = ()
    together = torch.empty(0)  # their weights as one, unless they have moved since

    def project(self: Any, x: Tensor) -> Tensor:
        """All siblings' outputs, side by side."""
        weights = [getattr(self, name).weight for name in self.siblings]
        bias = getattr(self, self.siblings[0]).bias
        if bias is not None:
            bias = torch.cat([getattr(self, name).bias for name in self.siblings])
        if torch.is_grad_enabled() or self.together.data_ptr() != weights[0].data_ptr():
            return F.linear(x, torch.cat(weights), bias)
        return F.linear(x, self.together, bias)


def _lay_out(module: Any) -> None:
    """Put the siblings' weights side by side in memory, which are then read as one."""
    parts = [getattr(module, name) for name in module.siblings]
    if parts and module.together.data_ptr() != parts[0].weight.data_ptr():
        module.together = torch.cat([p.weight.data for p in parts])
        for part, piece in zip(parts, module.together.split([p.out_features for p in parts]), strict=True):
            part.weight.data = piece


def _linear(module: nn.Module, *names: str) -> bool:
    """Whether plain linear layers have these names, all or none with a bias."""
    parts = [getattr(module, n, None) for n in names]
    return all(type(p) is nn.Linear for p in parts) and len({p.bias is None for p in parts}) == 1  # type: ignore[union-attr]


class CompiledNorm(_CompiledModule):
    late = 0

    @staticmethod
    def fits(module: nn.Module) -> bool:
        weight = getattr(module, "weight", None)
        return type(module).__name__.endswith("RMSNorm") and isinstance(weight, Tensor) and weight.ndim == 1

    @staticmethod
    def trial(module: Any) -> Any:
        return module(torch.randn(5, len(module.weight)))

    @property
    def kind(self: Any) -> NormKind:
        return NormKind(float(self.variance_epsilon if hasattr(self, "variance_epsilon") else self.eps), self.late)

    def forward(self: Any, x: Tensor) -> Tensor:
        if x.dtype != self.weight.dtype or not able(x, x.shape[-1]):
            return super().forward(x)  # type: ignore[misc]
        return self.kind(x, self.weight)


class CompiledLateNorm(CompiledNorm):
    late = 1


class CompiledMlp(_CompiledModule):
    siblings = ("gate_proj", "up_proj")

    @staticmethod
    def fits(module: nn.Module) -> bool:
        return _linear(module, "gate_proj", "up_proj") and hasattr(module, "down_proj")

    @staticmethod
    def trial(module: Any) -> Any:
        return module(torch.randn(1, 5, module.gate_proj.in_features))

    def forward(self: Any, x: Tensor) -> Tensor:
        if not able(x, self.gate_proj.out_features):
            return super().forward(x)  # type: ignore[misc]
        return self.down_proj(silu_mul(self.project(x)))


class CompiledAttention(_CompiledModule):
    siblings = ("q_proj", "k_proj", "v_proj")

    @staticmethod
    def fits(module: nn.Module) -> bool:
        dim = getattr(module, "head_dim", None)
        able = isinstance(dim, int) and dim % (2 * LANES) == 0 and dim <= WIDEST and hasattr(module, "o_proj")
        return able and _linear(module, "q_proj", "k_proj", "v_proj")

    @staticmethod
    def trial(module: Any) -> Any:
        """What the module asks its plan for, and what it makes of the answer."""
        seen = RecordingPlan(5)
        rope = torch.randn(2, 1, 5, module.head_dim)
        with using(seen):
            out = module(
                torch.randn(1, 5, module.q_proj.in_features), position_embeddings=tuple(rope), attention_mask=None
            )
        how = [float("nan") if x is None else float(x) for layer, scoring in seen.calls for x in (layer, *scoring)]
        return [*seen.inputs, torch.tensor(how), out[0]]

    @property
    def head_norms(self: Any) -> tuple[Any, Any]:
        """The norms of queries and keys, if there are any."""
        return getattr(self, "q_norm", None), getattr(self, "k_norm", None)

    @property
    def heads(self: Any) -> Heads:
        """How this module's heads are made."""
        norm, _ = self.head_norms
        heads, kv = (p.out_features // self.head_dim for p in (self.q_proj, self.k_proj))
        return Heads(heads, kv, self.head_dim, None if norm is None else norm.kind)

    def forward(
        self: Any, hidden_states: Tensor, position_embeddings: Any = None, attention_mask: Any = None, **more: Any
    ) -> tuple[Tensor, None]:
        x, plan = hidden_states, active()
        weights = [None if n is None else n.weight for n in self.head_norms]
        kinds = {t.dtype for t in (x, self.q_proj.weight, *position_embeddings, *weights) if t is not None}
        if (
            plan is None
            or len(x) > 1
            or len(kinds) > 1
            or torch.is_autocast_enabled("cpu")
            or more.get("past_key_values") is not None
            or not able(x)
        ):
            return super().forward(x, position_embeddings, attention_mask, **more)  # type: ignore[misc]
        cos, sin = (t[0].contiguous() for t in position_embeddings)
        q, k, v = (t.transpose(0, 1) for t in self.heads(self.project(x[0]), cos, sin, *weights))
        out = plan.attend(int(self.layer_idx), q, k, v, Scoring(self.scaling, window_of(self)))
        return self.o_proj(out.reshape(*x.shape[:2], -1)), None


_made: dict[tuple[str, type], type] = {}


def _subclass(kind: type, base: type) -> type:
    key = kind.__name__, base
    if key not in _made:
        _made[key] = type(base.__name__, (kind, base), {})
    return _made[key]


def _form(module: nn.Module) -> tuple[Any, ...]:
    """What makes two modules of one model compute the same function of their weights."""
    plain = (bool, int, float, str, type(None))
    parts = [
        (
            name,
            type(part),
            *sorted((k, repr(v)) for k, v in vars(part).items() if isinstance(v, plain) and k != "layer_idx"),
        )
        for name, part in module.named_modules()
    ]
    shapes = [(name, tuple(p.shape), p.dtype) for name, p in module.named_parameters()]
    return (*parts, *shapes)


@torch.no_grad()
def randomised(module: Any) -> Any:
    """A copy to try things on: in float32, with random weights."""
    tried = copy.deepcopy(module).float().cpu()
    for p in tried.parameters():
        p.copy_(torch.randn(p.shape) / max(1.0, p.shape[-1] ** 0.5 if p.ndim > 1 else 1.0))
    return tried


@torch.no_grad()
def _equal(module: nn.Module, kind: Any) -> bool:
    """Whether ours gives what a module gives, in float32 and with random weights."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        tried = randomised(module)
        found = []
        try:
            for cls in (type(module), _subclass(kind, type(module))):
                tried.__class__ = cls
                torch.default_generator.manual_seed(1)
                found.append(kind.trial(tried))
            torch.testing.assert_close(*found, atol=1e-5, rtol=1e-5, equal_nan=True)
        except (AttributeError, TypeError, RuntimeError, AssertionError):  # it has another form, or other numbers
            return False
        return True
