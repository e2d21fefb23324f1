"""A console shows a bar where the process is a notebook's kernel, and nothing of it elsewhere."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from recollect.runtime.console import Console
from recollect.runtime.notebook_bar import in_notebook


class Display:
    """Stands in for IPython: it keeps what was displayed, and what became of it."""

    def __init__(self, kernel: bool) -> None:
        self.shown: list[str] = []
        shell = SimpleNamespace(kernel=None) if kernel else SimpleNamespace()
        self.ipython = SimpleNamespace(get_ipython=lambda: shell)
        self.module = SimpleNamespace(HTML=str, display=self.display)

    def display(self, drawing: str, display_id: bool) -> SimpleNamespace:
        self.shown.append(drawing)
        return SimpleNamespace(update=self.shown.append)


def give(monkeypatch: pytest.MonkeyPatch, kernel: bool) -> Display:
    made = Display(kernel)
    monkeypatch.setitem(sys.modules, "IPython", made.ipython)  # type: ignore[misc]
    monkeypatch.setitem(sys.modules, "IPython.display", made.module)  # type: ignore[misc]
    return made


def test_a_bar_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    made = give(monkeypatch, kernel=True)
    with Console().progress("RL <step>", 4, 1) as bar:
        bar.within("sampling")
        bar("reward 0.5")
        bar(count=2)
    assert 'value="1" max="4"' in made.shown[0]
    assert any("sampling" in drawing for drawing in made.shown)
    assert any("2/4 ETA" in drawing and "reward 0.5" in drawing for drawing in made.shown)
    assert "4/4 ETA 0 s" in made.shown[-1]
    assert all("RL &lt;step&gt;" in drawing for drawing in made.shown)


def test_no_bar_with_quiet_or_in_a_shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    made = give(monkeypatch, kernel=True)
    with Console(quiet=True).progress("RL step", 4) as bar:
        bar("reward 0.5")
    assert (made.shown, capsys.readouterr().out) == ([], "")
    give(monkeypatch, kernel=False)
    assert not in_notebook()
    monkeypatch.delitem(sys.modules, "IPython")
    assert not in_notebook()
    with Console().progress("RL step", 4) as bar:
        bar("reward 0.5")
    assert "RL step 1/4" in capsys.readouterr().out
