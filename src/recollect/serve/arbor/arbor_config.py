"""`arbor.yaml`: which GPUs train and sample, and where jobs are kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recollect.files.yaml import read_mapping
from recollect.types import BadInput

VISIBLE = "CUDA_VISIBLE_DEVICES"
PARTS = ("inference", "training")


@dataclass(frozen=True)
class ArborConfig:
    """What the file says."""

    inference: tuple[int, ...] = ()  # GPUs that sample
    training: tuple[int, ...] = ()  # GPUs that train
    storage: Path | None = None


def read_arbor_config(path: Path) -> ArborConfig:
    """Read `arbor.yaml`; keys that would have no effect are refused."""
    tree = read_mapping(path, "Arbor configuration")
    if unknown := sorted(str(key) for key in set(tree) - {*PARTS, "storage_path"}):
        raise BadInput(f"{path}: {unknown[0]} has no effect here; known are inference, training and storage_path")
    storage = tree.get("storage_path")
    if storage is not None and (not isinstance(storage, str) or not storage.strip()):
        raise BadInput(f"{path}: storage_path must be a folder")
    inference, training = (_gpus(path, part, tree.get(part)) for part in PARTS)
    return ArborConfig(inference, training, None if storage is None else Path(storage).expanduser())


def _gpus(path: Path, part: str, given: Any) -> tuple[int, ...]:
    """The ids of one part: `0`, `'1,2'` or a list."""
    if given is None:
        return ()
    if not isinstance(given, Mapping) or set(given) - {"gpu_ids"}:
        raise BadInput(f"{path}: {part} must hold gpu_ids and nothing else")
    ids = given.get("gpu_ids")
    words = ids if isinstance(ids, list) else str("" if ids is None else ids).split(",")
    texts = [str(word).strip() for word in words]
    if not texts or not all(text.isdecimal() and len(text) < 5 for text in texts):
        raise BadInput(f"{path}: {part}.gpu_ids must be numbers with commas between them, such as '1,2'")
    return tuple(dict.fromkeys(int(text) for text in texts))


def has_gpu() -> bool:
    """Whether there is a GPU; torch is not asked, for it would choose one."""
    return any(Path("/dev").glob("nvidia[0-9]*"))


def choose_gpu(config: ArborConfig, available: bool, say: Callable[[str], None]) -> None:
    """Have this process use the GPU that trains; it samples there as well, from the same weights.

    ``available`` says whether there is any GPU. It must be called before a GPU is used.
    """
    named = config.training or config.inference
    if not named:
        return
    if not available:
        say("arbor.yaml names GPUs, and there is none here; the CPU trains and samples")
        return
    os.environ[VISIBLE] = str(named[0])
    others = sorted({*config.training, *config.inference} - {named[0]})
    if others:
        say(f"GPU {named[0]} trains and samples: one process has one GPU here; {others} stay free")
