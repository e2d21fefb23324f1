"""Which engine serves a model: the same scheduling everywhere, CUDA graphs where there is a GPU."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import torch

from recollect.config import Rollout
from recollect.engine.attention_check import fit_of
from recollect.engine.batching import Engine
from recollect.engine.library import PlainEngine
from recollect.engine.rows import Cache
from recollect.engine.shape import attention_shape, require_ours
from recollect.models.compiled import compile_layers, worth_compiling
from recollect.models.plain_rows import is_plain
from recollect.packing.flash_attention import prefer_installed
from recollect.types import BadInput


def make_engine(model: Any, decode: Callable[..., str], cfg: Rollout, own: bool) -> Engine | PlainEngine:
    """The engine of a model. ``own`` says that nobody else runs this model, so it may be made over for speed."""
    if is_plain(model):
        return PlainEngine(model, decode, cfg.max_num_seqs, fit_of(model.config).cached)
    require_ours(model)
    if not (fit := fit_of(model.config)).fast:
        raise BadInput(f"load this model with recollect.engine.load_fitted: {fit.why}")
    limits = cfg.max_num_seqs, cfg.max_num_batched_tokens, cfg.prefix_cache_tokens
    device = next(model.parameters()).device
    if device.type != "cuda":
        return Engine(model, decode, *limits)
    room = _cache_bytes(device, cfg.gpu_memory_utilization)
    cache = Cache(*attention_shape(model).cached, model.dtype, device)
    limits = *limits[:2], min(limits[2], room // 2 // cache.token_bytes)
    if cfg.enforce_eager or importlib.util.find_spec("triton") is None:
        return Engine(model, decode, *limits)
    from recollect.engine.cuda.cuda_engine import CudaEngine
    from recollect.engine.cuda.fused_projections import fuse
    from recollect.engine.cuda.prefill import able

    if able(model, cache.dim):
        prefer_installed(cache.dim)
    compiled = own and worth_compiling(model)
    if own:
        fuse(model)
    if compiled:
        compile_layers(model)
    return CudaEngine(model, decode, *limits, compiled, room // 2)


def _cache_bytes(device: torch.device, share: float) -> int:
    """Memory for keys and values: a share of the GPU's less the weights, or half of what is free where that is more."""
    free, total = torch.cuda.mem_get_info(device)
    return int(max(share * total - torch.cuda.memory_allocated(device), free / 2))
