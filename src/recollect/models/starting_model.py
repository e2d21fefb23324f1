"""The folder that a model is loaded from; `scratch…` names models that are made anew from the seed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from recollect.config import Config
from recollect.models.scratch_models import SCRATCH


@contextmanager
def starting_model(cfg: Config, path: str = "", within: Path | None = None) -> Iterator[str]:
    """The model that the run (or a part of it) starts from; ``scratch…`` is made anew from the seed, in ``within``."""
    path = path or cfg.actor_rollout_ref.model.path
    if path not in SCRATCH:
        yield path
        return
    if within is not None:
        within.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="recollect-scratch-", dir=within) as folder:
        SCRATCH[path].save(Path(folder), cfg.trainer.seed)
        yield folder
