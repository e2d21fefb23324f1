"""The configuration reference says what the code says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

from recollect.chat.templates import TEMPLATES
from recollect.config.compose import known_keys
from recollect.config.reference import config_markdown, sections
from recollect.registries import ESTIMATORS, FAMILIES, LOSSES, TRACKERS

PAGE = Path(__file__).parents[2] / "docs" / "config.md"


def test_the_page_is_current() -> None:
    written = PAGE.read_text(encoding="utf-8")
    assert written == config_markdown(), "run: python -m recollect.config.reference > docs/config.md"


def test_every_key_is_listed_once() -> None:
    listed = [key.name for section in sections() for key in section.keys]
    assert sorted(listed) == sorted(known_keys())
    page = config_markdown()
    assert [key for key in listed if page.count(f"\n| `{key}` |") != 1] == []


def test_comments_and_defaults_of_their_place_are_taken() -> None:
    keys = {key.name: key for section in sections() for key in section.keys}
    assert keys["trainer.threads"].meaning.startswith("CPU threads")
    assert keys["sft.optim.lr"].default == 1e-3  # not the default of the class, but of its place in the tree
    assert keys["actor_rollout_ref.actor.clip_ratio_low"].type == "float | None"
    assert all(section.about for section in sections())


def test_every_key_has_a_meaning() -> None:
    assert [key.name for section in sections() for key in section.keys if not key.meaning.strip()] == []


def row_of(key: str) -> str:
    return next(line for line in config_markdown().splitlines() if line.startswith(f"| `{key}` |"))


@pytest.mark.parametrize(
    ("key", "names"),
    [
        ("agent.template", TEMPLATES),
        ("algorithm.adv_estimator", ESTIMATORS),
        ("actor_rollout_ref.actor.policy_loss.loss_mode", LOSSES),
        ("data.made_up", FAMILIES),
        ("trainer.logger", TRACKERS),
    ],
)
def test_names_that_may_be_chosen_come_from_their_registry(key: str, names: Collection[str]) -> None:
    assert names
    assert [name for name in names if f"`{name}`" not in row_of(key)] == []


def test_a_name_of_a_plugin_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "`mine`" not in row_of("algorithm.adv_estimator")
    monkeypatch.setitem(ESTIMATORS, "mine", ESTIMATORS["grpo"])
    assert "`mine`, or `module:function`" in row_of("algorithm.adv_estimator")


def test_it_does_not_import_torch() -> None:
    code = "import sys; from recollect.config.reference import config_markdown as make; make(); "
    code += "sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_every_agent_has_a_row() -> None:
    from recollect.registries import AGENTS

    table = (PAGE.parent / "agents.md").read_text().partition("\n## ")[0]
    named = {name for line in table.splitlines() if line.startswith("|") for name in line.split("|")[1].split("`")}
    assert set(AGENTS) - named == set()


def test_every_fact_about_an_agent_has_a_row() -> None:
    from dataclasses import fields

    from recollect.registries import AgentSpec

    table = (PAGE.parent / "agents.md").read_text().partition("| fact |")[2].partition("\n## ")[0]
    named = {name for line in table.splitlines() if line.startswith("|") for name in line.split("|")[1].split("`")}
    assert {field.name for field in fields(AgentSpec)} - {"name", "loop"} - named == set()
