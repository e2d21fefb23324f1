"""Limits with which nothing could run are refused before anything starts."""

from __future__ import annotations

import pytest

from recollect.config import Config, Sandbox
from recollect.config.rules import checked


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
