"""The keys of the other systems with their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from recollect.config.translate.agent_keys import plain

SYSTEMS = {
    "verl": "verl",
    "verl_engines": "verl's other trainers",
    "verl_async": "verl's fully asynchronous trainer",
    "memagent": "MemAgent",
    "two_stage": "the two-stage memory agent",
    "agentfly": "AgentFly",
}


@cache
def tree(name: str) -> Mapping[str, Any]:
    """Dotted key → default of one system."""
    text = Path(__file__).with_name(f"{name}.yaml").read_text()
    found: dict[str, Any] = yaml.load(text, Loader=yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader)
    return found


@cache
def defaults() -> Mapping[str, list[Any]]:
    """Key → the defaults that it has anywhere."""
    found: dict[str, list[Any]] = {}
    for name in SYSTEMS:
        for key, value in tree(name).items():
            if value not in found.setdefault(plain(key), []):
                found[plain(key)].append(value)
    return found


def is_default(key: str, value: Any) -> bool:
    """Whether some system has this value of the key when nothing is said."""
    return any(_same(value, other) for other in defaults().get(key, []))


def _same(value: Any, other: Any) -> bool:
    """Equal, a text `true` being the same as the value."""
    if isinstance(value, bool) != isinstance(other, bool):
        return {type(value), type(other)} == {bool, str} and str(value).lower() == str(other).lower()
    return bool(value == other)
