"""Stored results, prompts and conversations that are damaged or too large: one line that names the file."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from recollect.config.compose import compose
from recollect.eval.items import Item
from recollect.runtime.console import Console
from recollect.types import BadInput
from recollect.workflows.data.locomo_files import LocomoOptions, write_locomo
from recollect.workflows.dry_run.dry_run import dry_run
from recollect.workflows.eval.comparison import compare
from tests.data.conversations import conversation

WRONG: dict[str, dict[str, Any]] = {
    "no such score": {"scores": {"em": 0.5}},
    "a score that is a text": {"scores": {"f1": "1"}},
    "a score that is too large": {"scores": {"f1": 10**400}},
    "scores of no kind": {"scores": 3},
    "a name of no kind": {"id": 7},
    "a length of no kind": {"length": [4]},
    "a reward of no kind": {"reward": None},
    "a sample of no kind": {"sample": {}},
    "questions of no kind": {"questions": [{"category": 1}]},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("metric", ["f1", "reward", "locomo_f1"])
def test_results_that_are_damaged(wrong: dict[str, Any], metric: str, tmp_path: Path) -> None:
    rows = [asdict(Item(f"q{n}-{size}", 0, "a", size, "", 0.5, {"f1": 0.5})) for n in range(2) for size in (4, 16)]
    rows[0] |= wrong
    folder = tmp_path / "mine.items"
    folder.mkdir()
    (folder / "recurrent.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "mine.json").write_text(json.dumps({"agents": {"recurrent": {}}}))
    mine = str(tmp_path / "mine")
    if "scores" in wrong and wrong["scores"] == {"em": 0.5} and metric != "f1":
        return  # nobody asks for what is missing
    with pytest.raises(BadInput, match=r"mine.*(damaged|has no f1)"):
        compare(mine, mine if metric == "locomo_f1" else None, metric, (None, None), Console(quiet=True))


def test_prompts_of_a_file_that_fill_the_window(tmp_path: Path) -> None:
    file = tmp_path / "prompts.json"
    file.write_text(json.dumps({"prompts": {"read": {"instruction": "word " * 40_000}}}))
    cfg = compose("needle", [f"agent.prompts={file}", f"trainer.default_local_dir={tmp_path / 'run'}"])
    with pytest.raises(BadInput, match=r"question and frame of .*prompts\.json"):
        dry_run(cfg, Console(quiet=True))


def test_conversations_that_a_split_does_not_fit(tmp_path: Path) -> None:
    file = tmp_path / "talks.json"
    file.write_text(json.dumps([conversation(f"conv-{n}") for n in range(3)]))
    with pytest.raises(BadInput, match=r"talks\.json: --split 60/10/30"):
        write_locomo(str(file), tmp_path / "out", LocomoOptions(split="60/10/30"), lambda line: None)
