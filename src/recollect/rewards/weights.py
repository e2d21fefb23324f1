"""Weights and indicator words of the trajectory reward, from the package's YAML and a file of the user's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from recollect.files.yaml import read_mapping
from recollect.types import BadInput

PARTS = ("completion", "efficiency", "quality", "reasoning")
DEFAULT = Path(__file__).with_name("weights.yaml")
FALLBACK = "mhqa"  # as which a name is read that stands nowhere


@dataclass(frozen=True)
class Weights:
    """What counts how much."""

    weights: Mapping[str, Mapping[str, float]]
    indicators: Mapping[str, tuple[str, ...]]
    connectors: tuple[str, ...]

    @staticmethod
    def load(given: str | Path | Mapping[str, Any] | None = None) -> Weights:
        """The package's own, with what a file or a dict says instead."""
        if given is None or isinstance(given, Mapping):
            return _merged(given or {})
        path = Path(given).expanduser()
        try:
            return _merged(read_mapping(path, "file of weights"))
        except BadInput as error:
            raise BadInput(str(error) if str(path) in str(error) else f"{path}: {error}") from None

    def of(self, domain: str) -> Mapping[str, float]:
        """The weights of a domain; those of mhqa for one that has none."""
        return self.weights.get(domain) or self.weights[FALLBACK]

    def words(self, domain: str) -> tuple[str, ...]:
        """The indicators of a domain."""
        return self.indicators.get(domain) or self.indicators[FALLBACK]

    @cached_property
    def marked(self) -> frozenset[str]:
        """All words of all indicators."""
        phrases = (*(p for row in self.indicators.values() for p in row), *self.connectors)
        return frozenset(word for phrase in phrases for word in phrase.split())


def _merged(more: Mapping[str, Any]) -> Weights:
    own = read_mapping(DEFAULT, "file of weights")
    if "domain_weights" in more:  # a file of VideoMultiAgents: the weights are one of its keys
        more = {"weights": more["domain_weights"]}
    for name in more:
        if name not in own:
            raise BadInput(f"weights: {name} is unknown; known: {', '.join(own)}")
    for name in ("weights", "indicators"):
        if not isinstance(more.get(name) or {}, Mapping):
            raise BadInput(f"weights: {name} is a mapping from domains")
    weights = {**own["weights"], **{k: _checked(k, v, own) for k, v in (more.get("weights") or {}).items()}}
    indicators = {**own["indicators"], **(more.get("indicators") or {})}
    words = more.get("reasoning") or own["reasoning"]
    for name, listed in {**indicators, "reasoning": words}.items():
        if not isinstance(listed, list | tuple):
            raise BadInput(f"weights: {name} is a list of words")
    return Weights(weights, {k: tuple(map(str, v)) for k, v in indicators.items()}, tuple(map(str, words)))


def _checked(domain: str, given: Any, own: Mapping[str, Any]) -> Mapping[str, float]:
    if not isinstance(given, Mapping) or not given.keys() <= set(PARTS):
        raise BadInput(f"weights.{domain} names {', '.join(PARTS)}, each with a number")
    row = {**own["weights"].get(domain, own["weights"][FALLBACK]), **given}
    for name, value in row.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise BadInput(f"weights.{domain}.{name}={value} must be a number between 0 and 1")
    if not math.isclose(sum(row.values()), 1, abs_tol=1e-6):
        raise BadInput(f"the weights of {domain} add up to {sum(row.values()):g}, not to 1")
    if row["completion"] <= 0:
        raise BadInput(f"weights.{domain}.completion must be larger than 0, or a wrong answer could win")
    return row
