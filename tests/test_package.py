"""What is not Python but belongs to the package is installed with it."""

from __future__ import annotations

import re
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


def test_nobody_is_told_to_install_somebody_elses_package() -> None:
    """`recollect` on the package index is another project; ours is recollect-rl."""
    wrong = re.compile(r"pip install[^\n`]*[ '\"]recollect(?!-rl)(\[|\b(?!/))")
    texts = [p for kind in ("*.md", "*.py", "*.toml") for p in ROOT.rglob(kind) if ".venv" not in str(p)]
    assert [str(p) for p in texts if p != Path(__file__) and wrong.search(p.read_text())] == []
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"] == "recollect-rl"
