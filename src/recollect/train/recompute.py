"""Which layers recompute their activations in the backward pass: on a GPU as few as its free memory asks for."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

HEADROOM = 6 << 30  # bytes for the logits of a piece and what else a pass needs for a moment


def layers_to_recompute(layers: int, kept: int, entry: int, free: int) -> int:
    """How many of some layers must recompute: each keeps ``kept`` bytes otherwise, and ``entry`` bytes in any case."""
    if layers * kept <= free:
        return 0
    return min(layers, -(-(layers * kept - free) // (kept - entry)))


def activation_bytes(config: Any) -> tuple[int, int]:
    """(kept by a layer, kept of a layer that recomputes) for each token, in bfloat16."""
    width = int(config.hidden_size)
    inner = int(getattr(config, "intermediate_size", None) or 4 * width)
    return 2 * (8 * width + 4 * inner), 2 * width


def free_bytes(device: torch.device) -> int:
    """Memory of a GPU that is free, or held for reuse."""
    held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + held


def is_scarce(device: torch.device) -> bool:
    """True where an update may need the memory that sampling holds: on a CPU, and on a GPU that is half full."""
    if device.type != "cuda":
        return True
    return free_bytes(device) < torch.cuda.get_device_properties(device).total_memory / 2


def allow(model: Any) -> None:
    """Let a model's layers recompute; until `choose` says otherwise all of them do."""
    model.gradient_checkpointing_enable({"use_reentrant": False})
    for name, module in model.named_modules():
        layer: Any = model.get_submodule(name.rpartition(".")[0]) if hasattr(module, "layer_idx") else None
        if hasattr(layer, "gradient_checkpointing"):
            layer.recollect_recompute = True


def choose(model: Any, tokens: int, owed: int) -> None:
    """Set which layers of a model on a GPU recompute for a micro-batch; ``owed`` bytes will be needed otherwise."""
    device = next(model.parameters()).device
    layers: list[nn.Module] = [m for m in model.modules() if hasattr(m, "recollect_recompute")]
    if not layers or device.type != "cuda":
        return
    kept, entry = activation_bytes(model.config)
    free = free_bytes(device) - owed - HEADROOM
    count = layers_to_recompute(len(layers), kept * tokens, entry * tokens, free)
    for index, layer in enumerate(layers):
        layer.gradient_checkpointing = index < count  # type: ignore[assignment]
