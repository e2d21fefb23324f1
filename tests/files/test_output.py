"""Places that take no files are refused in one sentence, whoever asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from recollect.files.output import refuse_unwritable
from recollect.types import BadInput
from tests.commands import run


def test_a_place_is_tried_and_left_as_it_was(tmp_path: Path) -> None:
    refuse_unwritable(tmp_path / "a" / "b", "it")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "x", tmp_path / ("n" * 300), Path("/proc/foo")):
        with pytest.raises(BadInput, match=r"^it cannot be written: .* \(.*\); name another place$"):
            refuse_unwritable(place, "it")


COMMANDS = {
    "train": ["train", "trainer.default_local_dir=/proc/foo", "--dry-run"],
    "sft": ["sft", "sft.steps=1", "trainer.default_local_dir=/proc/foo"],
    "eval": ["eval", "tiny", "--out", "/proc/foo/x"],
    "eval of a file": ["eval", "--model", "tiny", "--data", "rows.jsonl", "--out", "/proc/foo"],
    "rollout": ["rollout", "--domain", "math", "--tasks", "1", "--out", "/proc/foo.jsonl"],
    "pipeline": ["pipeline", "--out", "/proc/foo"],
    "stages": ["stages", "two_stage", "trainer.default_local_dir=/proc/foo"],
    "model": ["model", "tiny", "--out", "/proc/foo"],
    "export": ["export", "tiny", "--out", "/proc/foo"],
    "data": ["data", "needle", "/proc/foo.jsonl", "--count", "1"],
    "convert": ["convert", "rows.jsonl", "--domain", "math", "--out", "/proc/foo.jsonl"],
    "reward": ["reward", "rows.jsonl", "--domain", "math", "--output", "/proc/foo.json"],
    "sft-data": ["sft-data", "rows.jsonl", "--domain", "math", "--out", "/proc/foo"],
}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS.keys())
def test_commands_say_so(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "rows.jsonl").write_text('{"question": "x", "actions": [], "final_answer": "B"}\n')
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "/proc is not a folder that takes files" in done.stderr


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS.keys())
def test_a_link_that_leads_nowhere_is_found_first(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "rows.jsonl").write_text('{"question": "x", "actions": [], "final_answer": "B"}\n')
    there = [word.replace("/proc/foo", "o") for word in words]
    out = next(word.rpartition("=")[2] for word in there if word.rpartition("=")[2].split(".")[0] in ("o", "o/x"))
    (tmp_path / out.split("/")[0]).symlink_to(tmp_path / "nowhere" / "else")
    done = run(*there, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "link" in done.stderr
    assert len(done.stderr.splitlines()) == 1
