"""Checkpoints: plain Hugging Face folders that transformers and vLLM load, with the trainer's state beside.

A checkpoint is written next to its place, synced and renamed in; one that cannot be read is passed over for the one
before it, saying so.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from recollect.run import remove_tree
from recollect.train.learner import Learner

STATE = "trainer_state.json"
OPTIMIZER = "optimizer.pt"


def save(folder: Path, name: str, learner: Learner, tokenizer: Any, state: dict[str, Any]) -> Path:
    """Write ``folder/name`` and return it."""
    final, temporary = folder / name, folder / f".{name}.writing"
    remove_tree(temporary)
    temporary.mkdir(parents=True)
    learner.model.save_pretrained(temporary)
    tokenizer.save_pretrained(temporary)
    torch.save(learner.state(), temporary / OPTIMIZER)
    (temporary / STATE).write_text(json.dumps(state))
    for path in temporary.iterdir():
        _sync(path)
    _sync(temporary)
    remove_tree(final)
    os.replace(temporary, final)
    _sync(folder)
    return final


def names(folder: Path, kind: str) -> list[str]:
    """Checkpoints of one kind (``step`` or ``sft``), oldest first."""
    pattern = re.compile(rf"{kind}-(\d+)$")
    found = [(int(m.group(1)), p.name) for p in folder.glob(f"{kind}-*") if (m := pattern.match(p.name))]
    return [name for _, name in sorted(found)]


def prune(folder: Path, kind: str, keep: int, spare: tuple[str, ...] = ()) -> None:
    """Delete all but the newest ``keep`` checkpoints of a kind, and those to spare."""
    found = names(folder, kind)
    for name in found[: max(0, len(found) - keep)]:
        if name not in spare:
            remove_tree(folder / name)


def load_newest(folder: Path, kind: str, learner: Learner, warn: Callable[[str], None]) -> dict[str, Any] | None:
    """Put the newest readable checkpoint into the learner and return its state; None when there is none."""
    for name in reversed(names(folder, kind)):
        try:
            return load(folder / name, learner)
        except Exception as error:
            warn(f"checkpoint {name} cannot be read ({type(error).__name__}: {error}); trying the one before")
    return None


def load(path: Path, learner: Learner) -> dict[str, Any]:
    """Put one checkpoint into the learner and return its state."""
    state = json.loads((path / STATE).read_text())
    saved = torch.load(path / OPTIMIZER, weights_only=True, map_location=learner.device)
    load_weights(path, learner)
    learner.load_state(saved)
    return dict(state)


def load_weights(path: Path, learner: Learner) -> None:
    """Put a checkpoint's weights into a learner's model."""
    from safetensors.torch import load_file

    weights: dict[str, torch.Tensor] = {}
    for file in sorted(path.glob("*.safetensors")):
        weights |= load_file(file)
    missing, unexpected = learner.model.load_state_dict(weights, strict=False)
    tied = set(getattr(learner.model, "_tied_weights_keys", None) or ())
    if unexpected or set(missing) - tied:
        raise ValueError(f"its weights are those of another model ({(unexpected or missing)[0]})")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
