"""Trackers: other programs' views of a run's metrics. ``metrics.jsonl`` stays the truth; they follow it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence

from recollect.track.mlflow import Mlflow
from recollect.track.swanlab import Swanlab
from recollect.track.tensorboard import Tensorboard
from recollect.track.tracker import Tracker
from recollect.track.trackio import Trackio
from recollect.track.wandb import Wandb
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


def trackers_of(names: Sequence[str]) -> list[str]:
    """The trackers among the names of trainer.logger; refuse unknown ones and those that are not installed."""
    for name in names:
        if name not in TRACKERS and name not in OWN:
            raise BadInput(f"trainer.logger={name} is unknown; known: {', '.join([*OWN, *TRACKERS])}")
        missing = [p for p in NEEDS.get(name, (name,)) if name in TRACKERS and importlib.util.find_spec(p) is None]
        if missing:
            raise BadInput(
                f"trainer.logger={name} needs the package {missing[0]}, which is not installed: "
                f"pip install 'recollect[{name}]'"
            )
    return [name for name in dict.fromkeys(names) if name in TRACKERS]
