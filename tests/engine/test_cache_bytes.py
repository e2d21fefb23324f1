"""How much memory the engine's keys and values may have on a GPU."""

from __future__ import annotations

import pytest

from recollect.engine.make_engine import cache_bytes


@pytest.mark.parametrize(
    ("share", "free", "mine", "expected"),
    [
        (0.5, 98, 2, 49),  # alone: half of what is free
        (0.85, 98, 2, 83),  # a large share, less the weights
        (0.5, 30, 70, 15),  # weights that take more than the share leave half of what is free
        (0.06, 98, 2, 5.88),  # a small share stays small on an empty GPU,
        (0.06, 10, 2, 4),  # and on a full one
        (0.5, 10, 2, 10),  # others have taken the rest
    ],
)
def test_a_share_is_kept(share: float, free: int, mine: int, expected: float) -> None:
    gigabyte = 10**9
    given = cache_bytes(share, 100 * gigabyte, free * gigabyte, mine * gigabyte)
    assert given == pytest.approx(expected * gigabyte)
