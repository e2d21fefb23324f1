"""`recollect doctor` says what is missing and how to get it, and fails only where nothing can be trained."""

from __future__ import annotations

import pytest

from recollect.workflows import doctor
from tests.commands import run


def test_one_screen_with_nothing_broken() -> None:
    done = run("doctor", "tiny")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert 10 <= len(lines) <= 30
    assert {"Python", "torch", "device", "compiler", "sandbox", "disk", "model"} <= {line.split()[1] for line in lines}


def test_a_model_that_is_not_there_is_broken() -> None:
    done = run("doctor", "/nowhere")
    assert done.returncode == 1
    assert "✗ model" in done.stdout


def test_what_is_missing_comes_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    monkeypatch.setitem(doctor.EXTRAS, "lora", ("no_such_module", "adapters"))
    found = {finding.what: finding for finding in doctor.findings()}
    assert (found["compiler"].verdict, found["compiler"].fix) == ("missing", "apt install g++")
    assert (found["lora"].verdict, found["lora"].fix) == ("missing", "pip install 'recollect-rl[lora]'")


def test_every_extra_is_one_of_the_package() -> None:
    import tomllib
    from pathlib import Path

    extras = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert set(doctor.EXTRAS) <= set(extras)
