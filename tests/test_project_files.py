"""The files around the package: hooks and workflow use the project's own commands, and the changelog has its form."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
PAGES = {
    "config.md": "recollect.config.reference",
    "commands.md": "recollect.cli.commands_reference",
    "from-verl.md": "recollect.config.translate.verl_reference",
    "from-videomultiagents.md": "recollect.config.translate.trl.trl_reference",
}


def test_hooks_use_the_projects_environment() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [r["repo"] for r in config["repos"]] == ["local"]
    hooks = config["repos"][0]["hooks"]
    assert {h["language"] for h in hooks} == {"system"}
    programs = {h["id"]: h["entry"].split()[0] for h in hooks}
    assert programs == {
        "ruff-check": ".venv/bin/ruff",
        "ruff-format": ".venv/bin/ruff",
        "mypy": ".venv/bin/mypy",
        "generated-pages": "make",
    }
    assert hooks[-1]["entry"].split()[-1] in TARGETS


def test_the_workflow_runs_the_target_that_contributors_run() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())
    steps = workflow["jobs"]["test"]["steps"]
    assert [s["run"] for s in steps if "run" in s] == ["make test"]
    assert [s["uses"].split("@")[0] for s in steps if "uses" in s] == ["actions/checkout", "actions/setup-python"]
    assert "test" in TARGETS


@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
def test_all_generated_pages_are_written_by_one_target() -> None:
    done = subprocess.run(["make", "-n", "docs-generated"], cwd=ROOT, capture_output=True, text=True, check=True)
    made = re.findall(r"python -m (\S+) > \S+ && mv \S+ docs/(\S+)", done.stdout)
    assert {page: module for module, page in made} == PAGES


@pytest.mark.skipif(shutil.which("make") is None or shutil.which("git") is None, reason="no make or git here")
def test_the_map_is_printed() -> None:
    done = subprocess.run(["make", "-s", "map"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "| folders in one import cycle, imports at module level | 0 |" in done.stdout


def test_the_changelog_begins_with_what_is_not_released() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    sections = re.findall(r"^## \[(.+?)\]", text, re.MULTILINE)
    kinds = set(re.findall(r"^### (.+)$", text, re.MULTILINE))
    assert sections[0] == "Unreleased"
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
