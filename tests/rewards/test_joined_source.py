"""Modules that are joined to one program may not hide each other's names."""

from __future__ import annotations

from pathlib import Path

import pytest

from recollect.rewards import joined_source


def test_a_name_that_two_modules_define_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one.py").write_text("def same() -> int:\n    return 1\n")
    (tmp_path / "two.py").write_text("def other() -> int:\n    return 2\n")
    (tmp_path / "three.py").write_text("class same:\n    pass\n")
    monkeypatch.setattr(joined_source, "_text", lambda name: (tmp_path / f"{name}.py").read_text())
    assert "def other" in joined_source.joined(["one", "two"])
    with pytest.raises(AssertionError, match="define same twice"):
        joined_source.joined(["one", "two", "three"])
