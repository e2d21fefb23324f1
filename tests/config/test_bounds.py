"""What a single setting may be is said beside its field, and checked for all of them alike."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from functools import reduce
from math import inf, nan
from typing import Any

import pytest

from recollect.config import Config, Sandbox
from recollect.config.compose import compose
from recollect.config.rules import checked
from recollect.config.schema.bounds import problems
from recollect.types import BadInput

POLICY = "actor_rollout_ref.actor"
BOUNDS = (  # limits that may be none
    *(f"{POLICY}.{name}" for name in ("clip_ratio", "clip_ratio_low", "clip_ratio_high", "clip_ratio_c", "grad_clip")),
    *("critic.cliprange_value", "critic.grad_clip", "algorithm.rollout_is_threshold"),
    *("agent.timeout_s", "agent.reward_timeout_s"),
)


def float_keys(section: Any, prefix: str = "") -> Iterator[str]:
    for name, kind in typing.get_type_hints(section).items():
        if dataclasses.is_dataclass(kind):
            yield from float_keys(kind, f"{prefix}{name}.")
        elif kind is float or float in typing.get_args(kind):
            yield f"{prefix}{name}"


KEYS = list(float_keys(Config))


def found(key: str, value: Any) -> list[str]:
    cfg = Config()
    *path, name = key.split(".")
    setattr(reduce(getattr, path, cfg), name, value)
    return list(problems(cfg))


def test_infinity_is_for_bounds() -> None:
    assert set(BOUNDS) < set(KEYS)
    for key in KEYS:
        value = [inf, 0.9] if key.endswith("betas") else inf
        assert found(key, value) == ([] if key in BOUNDS else [f"{key}=inf must be a finite number"])
        assert found(key, -inf) == [f"{key}=-inf must be a finite number"]
        assert found(key, nan) == [f"{key}=nan must be a finite number"]


def test_the_command_line_is_refused_too() -> None:
    with pytest.raises(BadInput, match=r"^actor_rollout_ref\.actor\.optim\.lr=inf must be a finite number$"):
        compose("needle", ["actor_rollout_ref.actor.optim.lr=inf"])
    assert compose("needle", ["actor_rollout_ref.actor.grad_clip=inf"]).actor_rollout_ref.actor.grad_clip == inf


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("isolation", "chroot"),
        ("timeout_s", 0),
        ("memory_mb", 8),
        ("processes", 1),
        ("output_kb", -1),
        ("max_sessions", 0),
    ],
)
def test_a_value_that_cannot_work_is_refused(key: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"sandbox\.{key}={value}"):
        checked(Config(sandbox=Sandbox(**{key: value})))  # type: ignore[arg-type]
    checked(Config())


def test_the_defaults_keep_their_own_rules() -> None:
    assert list(problems(Config())) == []


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("actor_rollout_ref.rollout.n", 0, " must be positive (other names of it: agent.num_chains)"),
        (
            "data.max_response_length",
            -1,
            " must be positive (other names of it: agent.max_tokens_per_turn, "
            "actor_rollout_ref.rollout.response_length)",
        ),
        ("actor_rollout_ref.actor.ppo_mini_batch_size", -1, " must not be negative"),
        ("critic.ppo_mini_batch_size", -1, " must not be negative"),
    ],
)
def test_counts_of_tasks_and_tokens_have_their_rule_at_the_field(key: str, value: int, said: str) -> None:
    assert found(key, value) == [f"{key}={value}{said}"]
