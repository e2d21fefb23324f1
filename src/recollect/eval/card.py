"""The reproducibility card of an evaluation: what must be equal to get the same numbers again."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from recollect import __version__
from recollect.config import Config
from recollect.config.compose import to_yaml
from recollect.config.prompt_file import prompts_hash
from recollect.files.rows import expand

PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "peft")


def card(cfg: Config, model: str, data: Sequence[str], seeds: Sequence[int]) -> dict[str, Any]:
    """Versions, seeds, hashes of settings, data and weights, hardware."""
    return {
        "versions": {
            "python": platform.python_version(),
            "recollect": __version__,
            **{name: _version(name) for name in PACKAGES},
        },
        "seeds": list(seeds),
        "config_hash": hashlib.sha256(to_yaml(cfg).encode()).hexdigest(),
        "data_hash": {Path(p).name: file_hash(Path(p).expanduser()) for p in expand(data)},
        "prompts_hash": prompts_hash(cfg),
        "model_hash": model_hash(model),
        "hardware": hardware(),
    }


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def model_hash(model: str) -> str | None:
    """SHA-256 over the weights in a folder; None for a name that is not a folder."""
    files = sorted(p for p in Path(model).expanduser().glob("*") if p.suffix in (".safetensors", ".bin"))
    return hashlib.sha256("".join(file_hash(p) for p in files).encode()).hexdigest() if files else None


def hardware() -> dict[str, Any]:
    """The machine, its processor and its GPUs."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {"machine": platform.machine(), "system": platform.system(), "cpu": _cpu(), "cores": cores, "gpus": gpus}


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "")
    except OSError:
        return platform.processor()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
