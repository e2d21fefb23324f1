"""The answer to a key: its own, or that of the first pattern it fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from recollect.config import Config
from recollect.config.translate import agent_keys as agent
from recollect.config.translate import critic_keys as critic
from recollect.config.translate import data_keys as data
from recollect.config.translate import other_keys as rest
from recollect.config.translate import policy_keys as policy
from recollect.config.translate import reward_keys as reward
from recollect.config.translate import rollout_keys as rollout
from recollect.config.translate.key_answer import Answer

SECTIONS = (rest, agent, data, policy, rollout, critic, reward)  # patterns of the first come first
ANSWERS: Mapping[str, Answer] = {key: answer for section in SECTIONS for key, answer in section.ANSWERS.items()}
PATTERNS = tuple(key for key in ANSWERS if "*" in key)


@cache
def answer_of(key: str) -> Answer | None:
    """What becomes of a key of another system; None for keys that mean the same here, and for unknown ones."""
    if key in ANSWERS:
        return ANSWERS[key]
    if key in own_keys():
        return None
    found = next((pattern for pattern in PATTERNS if fnmatchcase(key, pattern)), None)
    return ANSWERS[found] if found is not None else None


@cache
def own_keys() -> frozenset[str]:
    """The dotted keys of our own tree."""
    return frozenset(_keys(Config()))


def _keys(section: Any, prefix: str = "") -> Iterator[str]:
    for field in fields(section):
        value = getattr(section, field.name)
        if is_dataclass(value):
            yield from _keys(value, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}"
