"""What is not Python but belongs to the package is installed with it."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_every_data_file_is_installed() -> None:
    package = ROOT / "src" / "recollect"
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    globs = settings["tool"]["setuptools"]["package-data"]["recollect"]
    installed = {path for glob in globs for path in package.glob(glob)}
    there = {p for p in package.rglob("*") if p.is_file() and p.suffix not in (".py", ".pyc")}
    assert there - installed == set()
    assert all(any(package.glob(glob)) for glob in globs)
