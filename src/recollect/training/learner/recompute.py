"""Which layers recompute their activations in the backward pass: as few as free memory asks for."""

from __future__ import annotations

from typing import Any

from recollect.models.compiled import worth_compiling
from recollect.models.small_copy import token_shape
from recollect.models.text_config import text_config
from recollect.training.learner.forward import CHUNK_LOGITS
from recollect.training.learner.free_memory import free_bytes

LOGIT = 24  # bytes that the softmax of a piece needs for each of its logits, gradients included


def layers_to_recompute(layers: int, kept: int, entry: int, free: int) -> int:
    """How many of some layers must recompute: each keeps ``kept`` bytes otherwise, and ``entry`` bytes in any case."""
    if layers * kept <= free:
        return 0
    return min(layers, -(-(layers * kept - free) // (kept - entry)))


def kept_numbers(config: Any, compiled: bool) -> int:
    """About how many numbers a layer keeps of each token for the backward pass."""
    width, (_, heads, dim) = int(config.hidden_size), token_shape(config)
    inner = int(getattr(config, "intermediate_size", None) or 4 * width)
    kept = 5 * width + 3 * (getattr(config, "num_attention_heads", 0) or 0) * dim + 2 * heads * dim + 3 * inner
    return kept if compiled else 2 * kept  # one operation at a time keeps what a compiled layer computes again


def allow(model: Any) -> None:
    """Let a model's layers recompute, if they can; until `choose` is asked none of them does."""
    try:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    except ValueError:
        return
    model.disable_input_require_grads()  # which costs a gradient that nobody reads
    for module in model.modules():
        if hasattr(module, "gradient_checkpointing"):
            module.gradient_checkpointing = False
    for name, module in model.named_modules():
        layer: Any = model.get_submodule(name.rpartition(".")[0]) if hasattr(module, "layer_idx") else None
        if hasattr(layer, "gradient_checkpointing"):
            layer.recollect_recompute = True


def none(model: Any) -> None:
    """Let no layer recompute."""
    for layer in _layers(model):
        layer.gradient_checkpointing = False


def _layers(model: Any) -> list[Any]:
    return [m for m in model.modules() if "recollect_recompute" in vars(m)]


def choose(model: Any, tokens: int, owed: int) -> None:
    """Set which layers recompute for a micro-batch; ``owed`` bytes will be needed by something else."""
    layers = _layers(model)
    if not layers:
        return
    first = next(model.parameters())
    config = text_config(model)
    entry = tokens * config.hidden_size * first.element_size()  # autocast leaves what goes between layers alone
    kept = tokens * kept_numbers(config, worth_compiling(model)) * first.element_size()
    logits = min(CHUNK_LOGITS[first.device.type], tokens * config.vocab_size)
    free = free_bytes(first.device) - owed - logits * LOGIT - kept  # a layer more, for what is made on the way
    count = layers_to_recompute(len(layers), kept, entry, free)
    for index, layer in enumerate(layers):
        layer.gradient_checkpointing = index < count
