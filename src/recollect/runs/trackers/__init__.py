"""Trackers: other programs' views of a run's metrics. ``metrics.jsonl`` stays the truth; they follow it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence

from recollect.runs.trackers.mlflow import Mlflow
from recollect.runs.trackers.swanlab import Swanlab
from recollect.runs.trackers.tensorboard import Tensorboard
from recollect.runs.trackers.tracker import Tracker
from recollect.runs.trackers.trackio import Trackio
from recollect.runs.trackers.wandb import Wandb
from recollect.types import BadInput

TRACKERS: dict[str, Callable[[], Tracker]] = {
    "tensorboard": Tensorboard,
    "wandb": Wandb,
    "swanlab": Swanlab,
    "mlflow": Mlflow,
    "trackio": Trackio,
}
OWN = ("console", "jsonl")  # a line per step in the terminal; metrics.jsonl, which is always written
NEEDS = {"mlflow": ("mlflow", "sqlalchemy", "alembic")}  # packages; elsewhere the one of the tracker's name


def trackers_of(names: Sequence[str], warn: Callable[[str], None] = lambda message: None) -> list[str]:
    """The trackers among the names of trainer.logger that are installed; unknown ones are refused.

    A tracker never stops training: one that is not installed is left out, saying how to get it.
    """
    found = []
    for name in dict.fromkeys(names):
        if name not in TRACKERS and name not in OWN:
            raise BadInput(f"trainer.logger={name} is unknown; known: {', '.join([*OWN, *TRACKERS])}")
        if name not in TRACKERS:
            continue
        missing = [p for p in NEEDS.get(name, (name,)) if importlib.util.find_spec(p) is None]
        if missing:
            warn(
                f"trainer.logger={name}: going on without it, the package {missing[0]} is not installed: "
                f"pip install 'recollect[{name}]'"
            )
        else:
            found.append(name)
    return found
