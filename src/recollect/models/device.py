"""Choosing device, compute type and thread count."""

from __future__ import annotations

import os

import torch

from recollect.types import BadInput

THREADED_FROM = 1_000_000  # parameters; below this one thread beats several, which wait for each other


def pick_device(name: str) -> str:
    """The device that a configuration value names."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise BadInput("trainer.device=cuda, but torch sees no GPU here; use trainer.device=cpu")
    if name not in ("cpu", "cuda"):
        raise BadInput(f"trainer.device={name}: known are auto, cpu and cuda")
    return name


def has_fast_bfloat16(device: str) -> bool:
    """True where bfloat16 matrix products are faster than float32 ones."""
    if device == "cuda":
        return torch.cuda.is_bf16_supported()
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()) and _cpu_has("avx512_bf16", "amx_bf16")


def pick_dtype(name: str, device: str) -> torch.dtype:
    """The compute type that a configuration value names."""
    if name == "auto":
        return torch.bfloat16 if has_fast_bfloat16(device) else torch.float32
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    if name not in known:
        raise BadInput(f"dtype={name}: known are auto, {' and '.join(known)}")
    return known[name]


def thread_counts(asked: int, parameters: int) -> tuple[int, int]:
    """CPU threads for (generating, updating): what was asked for, or what a model of this size gains from.

    Generating with a tiny model is many small products, where threads wait for each other more than they help.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if asked:
        return asked, asked
    return (1 if parameters < THREADED_FROM else cores), cores


def _cpu_has(*flags: str) -> bool:
    try:
        with open("/proc/cpuinfo") as f:
            words = next((line for line in f if line.startswith("flags")), "").split()
    except OSError:
        return False
    return any(flag in words for flag in flags)
