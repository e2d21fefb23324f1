"""A comparison that decides nothing is reported; one that is merely loose is not."""

from __future__ import annotations

from typing import Any

import pytest

from recollect.domains import watched_comparisons


class Modular:
    """Equal modulo 7, which one decoy of seven is too."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int) and (other - self.value) % 7 == 0

    __hash__ = None  # type: ignore[assignment]


class Everything:
    """Equal to all there is."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(("value", "reports"), [(Modular(8), 0), (Everything(), 500)])
def test_what_accepts_some_decoys_is_asked_more(value: Any, reports: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str] = []
    monkeypatch.setattr(watched_comparisons, "report", found.append)
    assert all(watched_comparisons.compare("place", "==", value, 15) for _ in range(500))
    assert len(found) == reports
