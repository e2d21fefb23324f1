"""Which engine serves a model: the same scheduling everywhere, CUDA graphs where there is a GPU."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import torch

from recollect.config import Rollout
from recollect.models.compiled import compile_layers, worth_compiling
from recollect.policies.engine.engine import Engine


def make_engine(model: Any, decode: Callable[..., str], cfg: Rollout, own: bool) -> Engine:
    """The engine of a model. ``own`` says that nobody else runs this model, so it may be made over for speed."""
    limits = cfg.max_num_seqs, cfg.max_num_batched_tokens, cfg.prefix_cache_tokens
    device = next(model.parameters()).device
    if device.type != "cuda":
        return Engine(model, decode, *limits)
    limits = *limits[:2], min(limits[2], _tokens_that_fit(model, device, cfg.gpu_memory_utilization))
    if cfg.enforce_eager or importlib.util.find_spec("triton") is None:
        return Engine(model, decode, *limits)
    from recollect.policies.engine.cuda.engine import CudaEngine
    from recollect.policies.engine.cuda.prepare import fuse

    compiled = own and worth_compiling(model)
    if own:
        fuse(model)
    if compiled:
        compile_layers(model)
    return CudaEngine(model, decode, *limits, compiled)


def _tokens_that_fit(model: Any, device: torch.device, share: float) -> int:
    """Prompt tokens that may be kept within a share of the GPU's memory; half of what is left after the weights."""
    config = model.config
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    each = 2 * config.num_hidden_layers * heads * dim * model.dtype.itemsize
    room = share * torch.cuda.get_device_properties(device).total_memory - torch.cuda.memory_allocated(device)
    return max(0, int(room / 2 / each))
