"""Plots are drawn for every result that a run can have, perfect and hopeless ones too."""

from __future__ import annotations

from pathlib import Path

import pytest

from recollect.eval import plots
from recollect.eval.accuracy import wilson
from recollect.eval.phase_scores import phase_means


@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_length_curve(rate: float, tmp_path: Path) -> None:
    rows = []
    for multiple, n in ((1, 256), (4, 128), (16, 96), (64, 16), (256, 8)):
        low, high = wilson(rate * n, n)
        assert low <= rate <= high
        rows.append({"multiple": multiple, "chunks": 4 * multiple, "accuracy": rate, "low": low, "high": high, "n": n})
    plots.length_curve(tmp_path / "x.png", rows, 4)
    assert (tmp_path / "x.png").stat().st_size > 5000


@pytest.mark.parametrize("held_out", [{"base": 0.3, "sft": None, "rl": 1.0}, {"base": 0.0, "sft": 0.5, "rl": None}])
def test_held_out_bars(held_out: dict[str, float | None], tmp_path: Path) -> None:
    plots.held_out_bars(tmp_path / "x.png", held_out, {})
    assert (tmp_path / "x.png").stat().st_size > 5000
    plots.held_out_bars(tmp_path / "y.png", held_out, phase_means({"base": {"a": 0.3, "b": 0.4}}))
    assert (tmp_path / "x.png").read_bytes() != (tmp_path / "y.png").read_bytes()  # with its interval


@pytest.mark.parametrize("rewards", [[0.0], [-1.0, 2.5, 0.3]])
def test_reward_curve(rewards: list[float], tmp_path: Path) -> None:
    plots.reward_curve(tmp_path / "x.png", list(range(1, len(rewards) + 1)), rewards)
    assert (tmp_path / "x.png").stat().st_size > 5000


def test_a_notebooks_own_way_of_showing_figures_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib

    monkeypatch.setitem(matplotlib.rcParams, "backend", "svg")
    plots.reward_curve(tmp_path / "x.png", [1, 2], [0.1, 0.2])
    assert matplotlib.rcParams["backend"] == "svg"
