"""The agent and the reward of a run that learns from stored trajectories: they follow from the domain."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from recollect.registries import DOMAINS
from recollect.trajectories.stored_rows import holds_trajectories, trajectory_rows
from recollect.types import BadInput

ROWS = 4  # of a file that are looked at


def agent_of(paths: Sequence[Any]) -> dict[str, Any]:
    """The settings of agent and reward, where the files are trajectories of known domains; else nothing."""
    given = [str(path) for path in paths]
    try:
        if not given or not holds_trajectories(given):
            return {}
        rows = list(islice(trajectory_rows(given), ROWS))
    except (BadInput, OSError, ValueError):  # told when the data is read
        return {}
    if not all(_domain(place, row) in DOMAINS for place, row in rows):
        return {}
    return {"agent": {"agent_type": "domain", "reward_name": "trajectory"}}


def _domain(place: str, row: dict[str, Any]) -> str:
    """The domain of a row: its own, or the folder that it lies in."""
    return str(row.get("domain") or Path(place.partition(",")[0]).parent.name)
