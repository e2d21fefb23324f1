"""What the configuration puts into a model before it is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recollect.config import CriticModel, Model
from recollect.models.load import EMBEDDED
from recollect.models.lora import add_adapter
from recollect.models.scratch_models import SCRATCH
from recollect.models.vision import freeze_tower
from recollect.training.learner import recompute


def adapt(model: Any, cfg: Model | CriticModel, path: str, seed: int, freeze: bool = True) -> Any:
    """Put in what the configuration asks for: gradient checkpointing, a LoRA adapter; ``freeze`` a vision tower."""
    if freeze:
        freeze_tower(model)
    if cfg.enable_gradient_checkpointing:
        recompute.allow(model)
    if cfg.lora_rank > 0:
        base = "" if path in SCRATCH else path
        if base not in ("", EMBEDDED) and Path(base).expanduser().exists():
            base = str(Path(base).expanduser().absolute())
        add_adapter(
            *(model, cfg.lora_rank, cfg.lora_alpha, cfg.target_modules, cfg.lora_dropout, base, seed), tower=not freeze
        )
    return model
