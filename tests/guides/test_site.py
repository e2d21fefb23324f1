"""The documentation is built without a warning, the README is short, and what is generated is up to date."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import recollect
from recollect.cli.commands_reference import commands_page
from recollect.config.compose import known_keys

ROOT = Path(__file__).parents[2]
HAS_MKDOCS = all(importlib.util.find_spec(name) for name in ("mkdocs", "material", "mkdocstrings"))


def build(config: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """`make docs`, to another folder."""
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(out)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


@pytest.mark.skipif(not HAS_MKDOCS, reason="needs mkdocs: pip install -e '.[docs]'")
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    done = build(ROOT / "mkdocs.yml", tmp_path / "site")
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    python = (tmp_path / "site" / "python.html").read_text()
    assert all(f'id="recollect.{name}"' in python for name in recollect.__all__)
    assert '<span class="gp">&gt;&gt;&gt; </span>' in python  # examples of docstrings are code


@pytest.mark.skipif(not HAS_MKDOCS, reason="needs mkdocs: pip install -e '.[docs]'")
def test_a_page_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    """A small site with the project's theme, and a broken anchor that has to be found."""
    pages = tmp_path / "docs"
    pages.mkdir()
    (pages / "index.md").write_text("# One\n\n[two](#two)\n")
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    settings |= {"nav": [{"One": "index.md"}], "hooks": [], "plugins": ["search"]}
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(settings))
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode == 1
    assert "#two" in done.stderr
    (pages / "index.md").write_text("# One\n\n## Two\n\n[two](#two)\n")
    assert build(tmp_path / "mkdocs.yml", tmp_path / "site").returncode == 0
    html = (tmp_path / "site" / "index.html").read_text()
    assert not any(f'{kind}="http' in html for kind in ("src", 'rel="stylesheet" href'))


def test_the_page_of_python_has_every_name() -> None:
    page = (ROOT / "docs" / "python.md").read_text()
    assert {name for name in recollect.__all__ if f"::: recollect.{name}\n" not in page} == set()


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= 800


def test_the_page_of_commands_is_up_to_date() -> None:
    assert (ROOT / "docs" / "commands.md").read_text() == commands_page(), "run: make docs-generated"


def test_the_keys_that_others_become_exist() -> None:
    page = (ROOT / "docs" / "tutorials" / "from-other-systems.md").read_text().partition("| `GRPOTrainer`")[2]
    named = re.findall(r"`((?:actor_rollout_ref|algorithm|data|trainer|agent)\.[\w.]+)", page)
    assert len(named) > 20
    assert set(named) - set(known_keys()) == set()
