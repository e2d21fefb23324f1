"""Small modules of the library, done in one compiled pass where a trial proves that the result is the same.

A norm or a gate of a small model is half a dozen operations on a few kilobytes, whose overheads add up. A module that
looks like one of the known kinds is tried against the compiled function with random weights; only equal ones are
replaced, by a subclass that still is the library's module for training.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from recollect.policies.engine.kernel import kernel

LANES = 16  # sizes must be multiples of this


def replace_modules(model: nn.Module) -> None:
    """Let the norms and gated MLPs of a model use compiled functions when no gradient is asked for."""
    for module in model.modules():
        for kind in (_Norm, _LateNorm, _Gated):
            if kind.fits(module) and not isinstance(module, _Compiled) and _equal(module, kind):
                module.__class__ = _subclass(kind, type(module))
                break


class _Compiled:
    """Marks a replaced module."""

    def plain(self, x: Tensor, weight: Tensor, size: int) -> bool:
        """True when the library's own code must run."""
        other = torch.is_grad_enabled() or x.device.type != "cpu" or x.dtype != weight.dtype
        return other or size % LANES != 0 or kernel("norm", x.dtype, x.device) is None


class _Norm(_Compiled):
    late = 0

    @staticmethod
    def fits(module: nn.Module) -> bool:
        weight = getattr(module, "weight", None)
        return type(module).__name__.endswith("RMSNorm") and isinstance(weight, Tensor) and weight.ndim == 1

    @staticmethod
    def trial(module: Any) -> Tensor:
        return torch.randn(5, len(module.weight), dtype=module.weight.dtype)

    def forward(self: Any, x: Tensor) -> Tensor:
        if self.plain(x, self.weight, x.shape[-1]):
            return super().forward(x)  # type: ignore[misc]
        x, out = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
        eps = float(self.variance_epsilon if hasattr(self, "variance_epsilon") else self.eps)
        rows, dim = x.numel() // x.shape[-1], x.shape[-1]
        kernel("norm", x.dtype, x.device)(  # type: ignore[misc]
            x.data_ptr(), self.weight.data_ptr(), out.data_ptr(), rows, dim, eps, self.late
        )
        return out


class _LateNorm(_Norm):
    late = 1


class _Gated(_Compiled):
    @staticmethod
    def fits(module: nn.Module) -> bool:
        return all(isinstance(getattr(module, n, None), nn.Linear) for n in ("gate_proj", "up_proj", "down_proj"))

    @staticmethod
    def trial(module: Any) -> Tensor:
        return torch.randn(1, 5, module.gate_proj.in_features, dtype=module.gate_proj.weight.dtype)

    def forward(self: Any, x: Tensor) -> Tensor:
        if self.plain(x, self.gate_proj.weight, self.gate_proj.out_features):
            return super().forward(x)  # type: ignore[misc]
        gate, up = self.gate_proj(x), self.up_proj(x)
        kernel("gated", x.dtype, x.device)(gate.data_ptr(), up.data_ptr(), gate.numel())  # type: ignore[misc]
        return self.down_proj(gate)


_made: dict[tuple[str, type], type] = {}


def _subclass(kind: type, base: type) -> type:
    key = kind.__name__, base
    if key not in _made:
        _made[key] = type(base.__name__, (kind, base), {})
    return _made[key]


@torch.no_grad()
def _equal(module: nn.Module, kind: Any) -> bool:
    """Whether the compiled function gives what a module gives, in float32 and with random weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        tried = copy.deepcopy(module).float().cpu()
        for p in tried.parameters():
            p.copy_(torch.randn(p.shape) / max(1.0, p.shape[-1] ** 0.5 if p.ndim > 1 else 1.0))
        x = kind.trial(tried)
        expected = tried(x)
        tried.__class__ = _subclass(kind, type(module))
        try:
            return torch.allclose(tried(x), expected, atol=1e-5, rtol=1e-5)
        except AttributeError:  # a norm that names its epsilon in another way
            return False
