"""The algorithms, as pure functions: sequences and prefix trees, advantages, losses, divergences.

``ADVANTAGES``, ``LOSSES``, ``KL`` and ``aggregate`` are loaded on first use: torch is not imported before.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recollect.algos.advantage import ADVANTAGES
    from recollect.algos.aggregation import aggregate
    from recollect.algos.kl import KL
    from recollect.algos.loss import LOSSES

__all__ = ["ADVANTAGES", "KL", "LOSSES", "aggregate"]

_HOMES = {"ADVANTAGES": "advantage", "LOSSES": "loss", "KL": "kl", "aggregate": "aggregation"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
