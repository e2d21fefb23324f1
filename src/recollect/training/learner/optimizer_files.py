"""An optimizer's state as torch.distributed.checkpoint writes it: safetensors that any number of ranks can read.

Each rank writes its part of the moments. No file of it is executed when it is read.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from recollect.training.learner.optimizers import Optimizers

FOLDER = "optimizer"
UPDATES = "updates"


def save_optimizer(optimizer: Optimizers, updates: int, folder: Path) -> None:
    """Write the state of an optimizer into ``folder/optimizer``; every rank takes part."""
    import torch.distributed.checkpoint as dcp

    writer = dcp.HuggingFaceStorageWriter(str(folder / FOLDER), save_distributed=True)
    dcp.save({**_named(optimizer), UPDATES: torch.tensor([updates])}, storage_writer=writer)


def load_optimizer(optimizer: Optimizers, folder: Path, alone: bool) -> int:
    """Put a stored state into an optimizer, however many ranks wrote it; returns the number of updates."""
    import torch.distributed.checkpoint as dcp

    reader = dcp.HuggingFaceStorageReader(str(folder / FOLDER))
    stored = reader.read_metadata().state_dict_metadata
    updates = torch.zeros(1, dtype=torch.int64)
    places: dict[str, Tensor] = {}
    for part, parameter, name in _moved(optimizer):
        for key in [k for k in stored if k.startswith(f"{name}::")]:
            shape = tuple(stored[key].size)  # type: ignore[union-attr]
            wanted = tuple(parameter.shape)
            if shape not in (wanted, (1,)):
                raise ValueError(f"its optimizer is for another model ({key})")
            places[key] = torch.zeros_like(parameter) if key.split("::")[1] != "step" else torch.zeros(1)
            part.state.pop(parameter, None)
    if left := set(stored) - set(places) - {UPDATES}:
        raise ValueError(f"its optimizer is for another model ({min(left)})")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")  # one process reads: that is what is meant
        dcp.load({**places, UPDATES: updates}, storage_reader=reader, no_dist=alone)
    for part, parameter, name in _moved(optimizer):
        found = {k.split("::")[1]: v for k, v in places.items() if k.startswith(f"{name}::")}
        if found:
            part.state[parameter] = {k: v.reshape(()) if k == "step" else v for k, v in found.items()}
    return int(updates)


def _moved(optimizer: Optimizers) -> list[tuple[Any, Any, str]]:
    """(optimizer, parameter, its name) of everything that is moved."""
    parts = [(part, p) for part in optimizer.parts for group in part.param_groups for p in group["params"]]
    return [(part, p, optimizer.names[id(p)]) for part, p in parts]


def _named(optimizer: Optimizers) -> dict[str, Tensor]:
    """Every tensor of the state under its parameter's name."""
    found: dict[str, Tensor] = {}
    for part, parameter, name in _moved(optimizer):
        for key, value in part.state.get(parameter, {}).items():
            found[f"{name}::{key}"] = value.reshape(1) if value.ndim == 0 else value
    return found
