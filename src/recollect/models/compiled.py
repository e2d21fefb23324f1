"""Layers compiled by torch, one function for all of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

COMPILED_FROM = 100_000_000  # parameters; compiling the layers of a smaller model takes longer than it saves


def worth_compiling(model: nn.Module) -> bool:
    """True for a model on a GPU that is large enough."""
    parameters = list(model.parameters())
    return parameters[0].is_cuda and sum(p.numel() for p in parameters) >= COMPILED_FROM


def compile_layers(model: nn.Module, trained: bool = False) -> None:
    """Compile the layers, the final norm and the rotary embedding.

    In a model that is trained only the layers are compiled, but for the last one, which computes only some of its
    tokens (see `models.attention.focus`).
    """
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 64)
    attention = {int(m.layer_idx): n for n, m in model.named_modules() if getattr(m, "layer_idx", None) is not None}
    layers = [model.get_submodule(attention[i].rpartition(".")[0]) for i in sorted(attention)]
    stem = attention[min(attention)].split(".layers.")[0]
    body = model.get_submodule(stem) if stem else model
    extra: list[Any] = [] if trained else [getattr(body, name, None) for name in ("norm", "rotary_emb")]
    for module in [*(layers[:-1] if trained else layers), *extra]:
        if isinstance(module, nn.Module):
            module.compile(dynamic=True)
