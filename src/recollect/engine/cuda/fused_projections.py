"""A model made ready for fast steps: projections of the same input as one product.

They are recognised by structure, not by architecture, and no parameter's name or place changes: a fused weight is one
piece of memory whose slices are the parameters.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SIBLINGS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))  # called with one input, in this order


class FusedFirst(nn.Linear):
    """The first of some projections: it computes all of them."""

    fused_weight: Tensor
    fused_bias: Tensor | None
    sizes: list[int]
    made: dict[str, Any]

    def forward(self, x: Tensor) -> Tensor:
        found = F.linear(x, self.fused_weight, self.fused_bias).split(self.sizes, -1)
        self.made["all"] = found
        return found[0]


class FusedNext(nn.Linear):
    """A later one: its part has been computed. The last one lets go of what was made, which may be gigabytes."""

    made: dict[str, Any]
    part: int
    last: bool

    def forward(self, x: Tensor) -> Tensor:
        found = self.made["all"][self.part]
        if self.last:
            del self.made["all"]
        return found


def fuse(model: nn.Module) -> None:
    """Compute sibling projections as one product, wherever they are plain linear layers."""
    for owner in model.modules():
        for names in SIBLINGS:
            parts: list[Any] = [getattr(owner, name, None) for name in names]
            if all(type(p) is nn.Linear for p in parts):
                _fuse(parts)


def _fuse(parts: list[Any]) -> None:
    biases = [p.bias for p in parts]
    if any((b is None) != (biases[0] is None) for b in biases):
        return
    weight = torch.cat([p.weight.data for p in parts])
    bias = None if biases[0] is None else torch.cat([b.data for b in biases])
    made: dict[str, Any] = {}
    start = 0
    for index, part in enumerate(parts):
        end = start + part.out_features
        part.weight.data = weight[start:end]
        if bias is not None:
            part.bias.data = bias[start:end]
        part.__class__ = FusedNext if index else FusedFirst
        part.made, part.part, part.last = made, index, index == len(parts) - 1
        start = end
    parts[0].fused_weight, parts[0].fused_bias = weight, bias
    parts[0].sizes = [p.out_features for p in parts]
