"""Numbers of the configuration that are none: infinity is for bounds alone, where it means that there is none."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from recollect.config import Config

POLICY = "actor_rollout_ref.actor"
BOUNDS = (
    *(f"{POLICY}.{name}" for name in ("clip_ratio", "clip_ratio_low", "clip_ratio_high", "clip_ratio_c", "grad_clip")),
    *("critic.cliprange_value", "critic.grad_clip", "algorithm.rollout_is_threshold"),
    *("agent.timeout_s", "agent.reward_timeout_s"),
)


def problems(cfg: Config) -> Iterator[str]:
    """What is infinite or no number, and must not be."""
    for key, value in _numbers(cfg, ""):
        if not math.isfinite(value) and not (key in BOUNDS and value == math.inf):
            yield f"{key}={value} must be a finite number"


def _numbers(section: Any, prefix: str) -> Iterator[tuple[str, float]]:
    for field in fields(section):
        key, value = f"{prefix}{field.name}", getattr(section, field.name)
        if is_dataclass(value):
            yield from _numbers(value, f"{key}.")
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, float):
                yield key, item
