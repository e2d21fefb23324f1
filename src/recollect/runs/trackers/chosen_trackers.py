"""The trackers that ``trainer.logger`` names: built in, or ``module:Class`` or ``module:function``."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from inspect import isclass, signature
from typing import Any

from recollect.config.schema.trainer import OWN_LOGGERS
from recollect.registries import TRACKERS, TrackerSpec
from recollect.runs.trackers.tracker import About, Tracker
from recollect.runtime.plugins import find
from recollect.types import BadInput

KEY = "trainer.logger"


def trackers_of(names: Sequence[str], warn: Callable[[str], None] = lambda message: None) -> list[str]:
    """The trackers among the names of trainer.logger that are installed; unknown ones are refused.

    A tracker never stops training: one that is not installed is left out, saying how to get it.
    """
    found = []
    for name in dict.fromkeys(names):
        if name in OWN_LOGGERS:
            continue
        spec = _spec(name)
        missing = [p for p in spec.packages if importlib.util.find_spec(p) is None]
        if missing:
            get = f"'recollect-rl[{spec.extra}]'" if spec.extra else missing[0]
            warn(f"{KEY}={name}: going on without it, the package {missing[0]} is not installed: pip install {get}")
        else:
            found.append(name)
    return found


def make_tracker(name: str) -> Tracker:
    """A tracker, ready to be opened."""
    make = _spec(name).make
    made: Tracker = EachRow(make) if _takes_rows(make) else make()
    return made


class EachRow:
    """A function as a tracker: it is called with the step and the numbers of each row."""

    def __init__(self, function: Callable[[int, Mapping[str, float]], Any]) -> None:
        self.log = function

    def open(self, about: About) -> str:
        """There is nothing to start."""
        return ""

    def close(self) -> None:
        """There is nothing to write out."""


def _spec(name: str) -> TrackerSpec:
    if ":" not in name and name not in TRACKERS:
        raise BadInput(f"{KEY}={name} is unknown; known: {', '.join([*OWN_LOGGERS, *TRACKERS])}")
    make = find(name, {known: spec.make for known, spec in TRACKERS.items()}, KEY)
    lacking = [part for part in ("open", "log", "close") if isclass(make) and not hasattr(make, part)]
    if lacking:
        raise BadInput(
            f"{KEY}={name}: a class of trackers has open(about), log(step, row), close(); it has no {lacking[0]}"
        )
    if not isclass(make) and not _takes_rows(make) and not _fits(make):
        raise BadInput(
            f"{KEY}={name}: write it as `def {name.rpartition(':')[2]}(step, row)`, or as a class of trackers"
        )
    return TRACKERS.of(name) or TrackerSpec(name, make)


def _takes_rows(make: Callable[..., Any]) -> bool:
    return not isclass(make) and _fits(make, 0, {})


def _fits(function: Callable[..., Any], *arguments: Any) -> bool:
    try:
        signature(function).bind(*arguments)
    except (TypeError, ValueError):
        return False
    return True
