"""Which backend computes for a model: the place to add one."""

from __future__ import annotations

import importlib.util
from typing import Any

import torch

from recollect.engine.backend import Backend
from recollect.engine.cpu.attention_kernel import attention_function
from recollect.engine.cpu.cpu_backend import CpuBackend
from recollect.engine.cpu.native_sampling import native_sample
from recollect.engine.plain import PlainBackend
from recollect.engine.sampling import TokenSampler, sample
from recollect.engine.shape import attention_shape
from recollect.models.attention import focus
from recollect.models.compiled import compile_layers, worth_compiling
from recollect.models.native.modules import replace_modules
from recollect.models.vision import sight_of
from recollect.packing.flash_attention import prefer_installed


def choose_backend(
    model: Any, max_rows: int = 256, graphs: bool = False, own: bool = False, row_bytes: int | None = None
) -> Backend:
    """The backend of a model: CUDA graphs if they are wanted, compiled kernels on a CPU, or the plain one.

    ``own`` says that nobody else runs this model, so its modules may be replaced for speed. ``row_bytes`` limits the
    memory of rows on a GPU.
    """
    attention_shape(model)  # refuses what no backend can compute
    device = next(model.parameters()).device
    if device.type == "cuda" and graphs and sight_of(model) is None and importlib.util.find_spec("triton") is not None:
        return _cuda_backend(model, max_rows, own, row_bytes)
    if device.type == "cpu":
        focus(model)
        if attention_function(model.dtype) is not None:
            replace_modules(model)
            return CpuBackend(model, max_rows)
    return PlainBackend(model, max_rows)


def choose_sampler(device: torch.device) -> TokenSampler:
    """What samples from logits on a device, for engines without a backend."""
    return native_sample if device.type == "cpu" else sample


def _cuda_backend(model: Any, max_rows: int, own: bool, row_bytes: int | None) -> Backend:
    from recollect.engine.cuda.cuda_backend import CudaBackend
    from recollect.engine.cuda.flash_prefill import supports
    from recollect.engine.cuda.fused_projections import fuse

    dim = attention_shape(model).dim
    if supports(model, dim):
        prefer_installed(dim)
    compiled = own and worth_compiling(model)
    if own:
        fuse(model)
    backend = CudaBackend(model, max_rows, compiled, row_bytes)
    if compiled and backend.layers is None:
        compile_layers(model)
    return backend
