"""The weight of the KL penalty."""

from __future__ import annotations

import math

import pytest

from recollect.algos.control import KLController


def test_fixed_stays() -> None:
    control = KLController(0.01)
    assert [control.update(kl, 1000) for kl in (0.0, 5.0, math.nan)] == [0.01] * 3


def test_adaptive_by_hand() -> None:
    control = KLController(0.5, "adaptive", target=0.1, horizon=1000)
    assert control.update(0.11, 100) == pytest.approx(0.5 * (1 + 0.1 * 0.1))  # 10 % too far
    assert control.update(9.0, 100) == pytest.approx(0.505 * 1.02)  # clipped to 20 %
    before = control.coef
    assert control.update(0.0, 500) == pytest.approx(before * 0.9)
    assert control.update(math.inf, 1000) == pytest.approx(before * 0.9 * 1.2)
    before = control.coef
    assert control.update(math.nan, 1000) == before
    assert control.update(0.1, 1000) == pytest.approx(before)


def test_it_goes_on_from_its_one_number() -> None:
    whole, first = (KLController(0.2, "adaptive", 0.05, 500) for _ in range(2))
    for kl in (0.01, 0.2, 0.051, 0.04):
        whole.update(kl, 64)
    for kl in (0.01, 0.2):
        first.update(kl, 64)
    second = KLController(first.coef, "adaptive", 0.05, 500)
    for kl in (0.051, 0.04):
        second.update(kl, 64)
    assert second.coef == whole.coef


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="fixed, adaptive"):
        KLController(0.1, "adaptiv")
    with pytest.raises(ValueError, match="above 0"):
        KLController(0.1, "adaptive", target=0.0)
