"""The engine of a model, with the limits of a configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from recollect.config import Rollout
from recollect.engine.attention_check import fit_of
from recollect.engine.batching import Engine
from recollect.engine.choose import choose_backend
from recollect.engine.library import LibraryEngine
from recollect.engine.shape import require_ours
from recollect.models.plain_rows import is_plain
from recollect.types import BadInput


def make_engine(
    model: Any, decode: Callable[..., str], cfg: Rollout, own: bool, threads: int = 0
) -> Engine | LibraryEngine:
    """The engine of a model. ``own`` says that nobody else runs this model, so its modules may be replaced for speed.

    ``threads`` is how many CPU threads it generates with; 0 leaves them as they are.
    """
    engine = _engine_of(model, decode, cfg, own)
    engine.threads = threads
    return engine


def _engine_of(model: Any, decode: Callable[..., str], cfg: Rollout, own: bool) -> Engine | LibraryEngine:
    if is_plain(model):
        return LibraryEngine(model, decode, cfg.max_num_seqs, fit_of(model.config).cached)
    require_ours(model)
    if not (fit := fit_of(model.config)).fast:
        raise BadInput(f"load this model with recollect.engine.load_fitted: {fit.why}")
    device, rows, prefix_tokens = next(model.parameters()).device, cfg.max_num_seqs, cfg.prefix_cache_tokens
    half = _cache_bytes(device, cfg.gpu_memory_utilization) // 2 if device.type == "cuda" else None
    backend = choose_backend(model, rows, graphs=not cfg.enforce_eager, own=own, row_bytes=half)
    if half is not None:  # rows and prefixes share the memory
        prefix_tokens = min(prefix_tokens, half // backend.cache.token_bytes)
    return Engine(model, decode, rows, cfg.max_num_batched_tokens, prefix_tokens, backend=backend)


def cache_bytes(share: float, total: int, free: int, mine: int) -> int:
    """Memory for keys and values, of a GPU with so many bytes in all, free, and taken by this process.

    A share of the GPU's less what this process has taken. Where that leaves little, because of large weights, it is the
    same share of what is free, but no more than half of it. So a small share stays small beside other processes.
    """
    return int(max(min(share * total - mine, free), min(share, 0.5) * free))


def _cache_bytes(device: torch.device, share: float) -> int:
    free, total = torch.cuda.mem_get_info(device)
    return cache_bytes(share, total, free, torch.cuda.memory_allocated(device))
