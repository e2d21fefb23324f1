"""`recollect optimize locomo` finds its tasks in LoCoMo's own file."""

from __future__ import annotations

import json
from pathlib import Path

from recollect.cli.optimizing import _locomo_files
from tests.commands import run
from tests.data.conversations import conversation, write


def test_prompts_are_measured_on_conversations_that_they_were_not_made_with(tmp_path: Path) -> None:
    file = write(tmp_path / "locomo10.json", *(conversation(f"conv-{26 + n}", 150) for n in range(3)))
    train, val = (json.loads(word.partition("=")[2])[0] for word in _locomo_files(str(file), tmp_path / "out", True))
    asked, chosen = ([json.loads(line) for line in Path(place).read_text().splitlines()] for place in (train, val))
    talk_of = lambda row: row["id"].partition("/")[0]
    assert not set(map(talk_of, asked)) & set(map(talk_of, chosen))
    assert sum(len(row["questions"]) for row in asked) == 600


def test_data_is_an_option_of_locomo_alone(tmp_path: Path) -> None:
    done = run("optimize", "needle", "--data", "x.json", cwd=tmp_path)
    assert done.returncode == 2
    assert "--data goes with the recipe locomo" in done.stderr
