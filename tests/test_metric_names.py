"""Every metric that the code writes is in docs/metrics.md. Runs of all kinds are held to it in tests/training/."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import recollect
from recollect.training.rl.metrics import ACTOR, FOUND
from tests.metric_names import documented, undocumented

SOURCES = [p for part in ("training", "eval") for p in sorted((Path(recollect.__file__).parent / part).rglob("*.py"))]
NAME = re.compile(r"(reward|advantage|actor|critic|rollout|tokens|tools|memory|time|val|sft)/[\w@/<>]+")


def literals(path: Path) -> set[str]:
    """The texts of a file that look like a metric's name; what is put in is written as <x>."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
        if isinstance(node, ast.JoinedStr):
            found.add("".join(str(p.value) if isinstance(p, ast.Constant) else "<x>" for p in node.values))
    return {text for text in found if NAME.fullmatch(text) and not text.endswith("/")}


def test_the_names_in_the_sources_are_documented() -> None:
    found = {name for path in SOURCES for name in literals(path)}
    assert {"critic/values_mean", "rollout/groups_of_one", "sft/loss", "val/<x>/<x>"} <= found
    filled = {"actor/<x>", "critic/<x>", "tools/<x>", "val/<x>/<x>", "tokens/<x>/<x>"}  # with names that runs show
    assert undocumented(found - filled) == []
    assert undocumented(f"actor/{name}" for name in (*ACTOR, *FOUND)) == []


def test_an_unknown_name_is_noticed() -> None:
    assert undocumented(["critic/nothing", "rollout/cuts", "reward/mean", "tools/calculator/ok"]) == [
        "critic/nothing",
        "rollout/cuts",
    ]
    assert documented().fullmatch("val/my source/best@4/low")
