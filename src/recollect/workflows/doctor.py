"""`recollect doctor`: what is here, what is missing, and the command that brings it."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Literal

from recollect.config import Sandbox
from recollect.registries import TRACKERS
from recollect.types import BadInput

Health = Literal["ok", "missing", "broken"]
GB = 1 << 30
LEAST_DISK = 2 * GB  # a run of the embedded model takes some MB; one of a real model keeps several copies of it
LEAST_PYTHON = (3, 11)
EXTRAS = {  # extra → the module that it brings, and what needs it
    "gguf": ("gguf", "GGUF files as models, and smollm2"),
    "json": ("llguidance", "response_format of recollect serve"),
    "lora": ("peft", "LoRA adapters (lora_rank)"),
    "math": ("math_verify", "the reward math_equal"),
    "serve": ("starlette", "recollect serve"),
    "mcp": ("mcp", "tools of MCP servers"),
    "vllm": ("vllm", "vLLM servers that sample (actor_rollout_ref.rollout.name=vllm)"),
    "ray": ("ray", "several machines (trainer.nnodes, actor_rollout_ref.rollout.nnodes)"),
    "dense": ("sentence_transformers", "search by meaning"),
    **{
        spec.extra: (spec.packages[0], f"trainer.logger=[{name}]")
        for name, spec in TRACKERS.items()
        if spec.extra and spec.packages
    },
}


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    what: str
    verdict: Health  # missing: something cannot be used; broken: nothing can be trained
    found: str
    fix: str = ""


def findings(model: str | None = None) -> Iterator[Finding]:
    """Every finding, the essential ones first."""
    yield _python()
    yield from _torch()
    yield _compiler()
    yield _sandbox()
    yield _disk(Path.cwd())
    for extra, (module, purpose) in EXTRAS.items():
        yield _extra(extra, module, purpose)
    if model is not None:
        yield _model(model)


def _python() -> Finding:
    found = platform.python_version()
    if sys.version_info[:2] < LEAST_PYTHON:
        return Finding("Python", "broken", found, "install Python 3.11 or newer")
    return Finding("Python", "ok", f"{found} ({sys.executable})")


def _torch() -> Iterator[Finding]:
    try:
        import torch
        import transformers
    except ImportError as error:
        yield Finding("torch", "broken", str(error), "pip install -c constraints.txt torch, then pip install -e .")
        return
    yield Finding("torch", "ok", f"{torch.__version__}, transformers {transformers.__version__}")
    if torch.cuda.is_available():
        about = torch.cuda.get_device_properties(0)
        name = f"{about.name}, {about.total_memory / GB:.0f} GiB"
        if util.find_spec("triton") is None:
            yield Finding("device", "missing", f"{name}; its fast kernels need triton", "pip install triton")
            return
    else:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        name = f"CPU, {cores} cores, {torch.get_num_threads()} threads (no CUDA device)"
    yield Finding("device", "ok", name)


def _compiler() -> Finding:
    found = next((path for name in ("c++", "g++", "clang++") if (path := shutil.which(name))), None)
    if found is None:
        return Finding("compiler", "missing", "none: torch's operations are used, which are slower", "apt install g++")
    import torch

    from recollect.models.native.blocks import able

    if not able(torch.empty(0)):
        text = f"{found} cannot compile the kernels; torch's operations are used, which are slower"
        return Finding("compiler", "missing", text, "apt install g++ libgomp1")
    return Finding("compiler", "ok", found)


def _sandbox() -> Finding:
    from recollect.sandbox.box import open_box

    try:
        box = open_box(Sandbox())
    except BadInput as error:
        return Finding("sandbox", "missing", f"no method works: {error}", "apt install bubblewrap")
    box.close()
    return Finding("sandbox", "ok", ", ".join(box.walls))


def _disk(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    text = f"{free / GB:.1f} GiB free in {folder}"
    return Finding("disk", "ok" if free >= LEAST_DISK else "missing", text, "" if free >= LEAST_DISK else "make room")


def _extra(extra: str, module: str, purpose: str) -> Finding:
    if util.find_spec(module) is None:
        return Finding(extra, "missing", f"for {purpose}", f"pip install 'recollect-rl[{extra}]'")
    return Finding(extra, "ok", f"{_version(module)} for {purpose}")


def _version(module: str) -> str:
    names = metadata.packages_distributions().get(module, [])
    return f"{names[0]} {metadata.version(names[0])}" if names else module


def _model(name: str) -> Finding:
    from recollect.models.checkpoints import find_checkpoint
    from recollect.models.load import load_config, load_tokenizer

    try:
        path = find_checkpoint(name)[0]
        config = load_config(path)
        load_tokenizer(path, None)
    except BadInput as error:
        return Finding("model", "broken", str(error), "name a folder, a run, a GGUF file, a hub name, smollm2 or tiny")
    window = getattr(config, "max_position_embeddings", None)
    return Finding("model", "ok", f"{name}: {config.model_type}" + (f", window {window:,}" if window else ""))


MARKS = {"ok": "✓", "missing": "–", "broken": "✗"}


def report(model: str | None, write: Callable[[str], None]) -> bool:
    """Write every finding as it is made; True when something can be trained."""
    good = True
    for finding in findings(model):
        write(f"{MARKS[finding.verdict]} {finding.what:12} {finding.found}")
        if finding.fix:
            write(f"  {'':12} → {finding.fix}")
        good = good and finding.verdict != "broken"
    return good
