"""Weights between a model and a folder, in whichever form the model trains: whole, or as an adapter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from recollect.models.kind_check import loader_of, sees
from recollect.models.lora import is_adapted, load_adapter, save_adapter
from recollect.models.weights_check import check_finite
from recollect.training.learner.master_weights import Masters
from recollect.training.learner.optimizer_files import FOLDER, load_optimizer
from recollect.training.learner.trained_model import TrainedModel

OPTIMIZER = "optimizer.pt"  # the file beside them with the state of their optimizer


def write_weights(model: Any, folder: Path, base: str | None = None) -> None:
    """Write what is trained of a model: a Hugging Face folder, or an adapter as peft writes it."""
    if is_adapted(model):
        save_adapter(model, folder, base)
    else:
        model.save_pretrained(folder)


def read_weights(folder: Path, model: Any, masters: Masters | None = None) -> None:
    """Put weights that were written of the same model back into it, and into the masters behind it."""
    from safetensors.torch import load_file

    if is_adapted(model):
        load_adapter(model, folder)
        return
    weights: dict[str, Tensor] = {}
    if sees(model.config):  # the library's files name the weights of such models otherwise than its modules do
        weights = loader_of(model.config).from_pretrained(folder, dtype=torch.float32).state_dict()
    else:
        for file in sorted(folder.glob("model*.safetensors")):
            weights |= load_file(file)
    missing, unexpected = model.load_state_dict(weights, strict=False)
    tied = set(getattr(model, "_tied_weights_keys", None) or ())
    if unexpected or set(missing) - tied:
        raise ValueError(f"its weights are those of another model ({(unexpected or missing)[0]})")
    check_finite(weights.items(), str(folder))
    if masters is not None:
        masters.load(weights)


def load_state(trained: TrainedModel, folder: Path) -> None:
    """Put a stored optimizer back, whether one process or several ranks wrote it."""
    if not (folder / FOLDER).is_dir():
        trained.load_state(torch.load(folder / OPTIMIZER, weights_only=True, map_location=trained.device))
        return
    with trained.awake():
        trained.updates = load_optimizer(trained.optimizer, folder, alone=True)
    trained.parked()
