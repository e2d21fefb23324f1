"""One process at a time, from the first moment of a command: before tasks, rewards and models are read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from recollect.files import locks
from recollect.files.locks import lock_file, lock_folder
from recollect.types import BadInput
from tests.commands import CONTEXT, _child, run

HOLD = """
import pathlib, sys
from recollect.files.locks import Lock
lock = Lock(pathlib.Path(sys.argv[1]), "it")
print("held", flush=True)
input()
"""


@contextmanager
def held(file: Path) -> Iterator[int]:
    """A process that holds a lock; yields its number."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        try:
            yield holder.pid
        finally:
            holder.kill()


RUN = "trainer.default_local_dir=run"
COMMANDS = {  # each has a second fault, which is only found by slow work
    "train": (["train", RUN, "actor_rollout_ref.model.path=nowhere"], "run/.lock"),
    "train of files": (["train", "needle", RUN, "data.train_files=nowhere.jsonl"], "run/.lock"),
    "sft": (["sft", RUN, "sft.steps=1", "actor_rollout_ref.model.path=nowhere"], "run/.lock"),
    "stages": (["stages", "two_stage", RUN, "agent.reward_name=nowhere.py:f"], "run/.lock"),
    "pipeline": (["pipeline", "--out", "run"], "run/.lock"),
    "rollout": (["rollout", "--domain", "math", "--data", "nowhere.jsonl", "--out", "o.jsonl"], ".o.jsonl.lock"),
    "rollout to a folder": (["rollout", "--domain", "math", "--data", "nowhere.jsonl", "--out", "o"], ".o.lock"),
    "eval": (["eval", "tiny", "data.val_files=nowhere.jsonl", "--out", "o"], ".o.lock"),
    "eval of a file": (
        ["eval", "--model", "tiny", "--data", "rows.jsonl", "agent.reward_name=nowhere.py:f", "--out", "o"],
        "o/.lock",
    ),
}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS.keys())
def test_a_command_looks_at_the_lock_before_its_slow_work(tmp_path: Path, words: tuple[list[str], str]) -> None:
    (tmp_path / "rows.jsonl").write_text('{"question": "x", "answer": "y"}\n')
    command, file = words
    with held(tmp_path / file) as process:
        done = run(*command, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert f"in use by process {process};" in done.stderr


@pytest.mark.parametrize("name", ["train", "train of files", "sft", "stages", "rollout"])
def test_a_command_that_is_refused_leaves_nothing(tmp_path: Path, name: str) -> None:
    assert run(*COMMANDS[name][0], cwd=tmp_path).returncode == 2
    assert list(tmp_path.iterdir()) == []


SLOW = "import time\ndef slow(answer):\n    time.sleep(0.5)\n    return 1.0\n"


def test_overlapping_rollouts_make_every_row_once(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    words = ["rollout", "--domain", "math", "--tasks", "8", "agent.reward_name=slow.py:slow", "agent.max_concurrency=1"]
    words += ["--out", "o.jsonl"]
    (tmp_path / "said").mkdir()
    both = []
    for name in "ab":
        (tmp_path / "said" / name).mkdir()
        given = (words, str(tmp_path / "said" / name), str(tmp_path), dict(os.environ))
        both.append(CONTEXT.Process(target=_child, args=given))
        both[-1].start()
    for process in both:
        process.join(120)
    first, second = sorted(both, key=lambda process: process.exitcode or 0)
    assert [first.exitcode, second.exitcode] == [0, 2]
    said = "".join((tmp_path / "said" / name / "error").read_text() for name in "ab")
    assert f"--out o.jsonl is in use by process {first.pid};" in said
    rows = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert len(rows) == len({row["task_id"] for row in rows}) == 8
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert "is there already" in done.stderr


def test_a_process_of_the_same_number_elsewhere_is_another_process(tmp_path: Path) -> None:
    with held(tmp_path / ".lock"):
        (tmp_path / ".lock").write_text(f"{os.getpid()}\n")  # as in another container
        with pytest.raises(BadInput, match="in use"):
            lock_folder(tmp_path, "it")


def test_a_lock_that_was_removed_before_it_was_taken_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, flock, calls = tmp_path / ".lock", locks.fcntl.flock, []

    def late(handle: int, how: int) -> None:
        if not calls:
            file.unlink()  # its holder is done between our opening it and our asking for it
        calls.append(handle)
        flock(handle, how)

    monkeypatch.setattr(locks.fcntl, "flock", late)
    with lock_folder(tmp_path, "it"):
        assert len(calls) == 2
        assert file.read_text() == f"{os.getpid()}\n"


def test_what_a_lock_made_is_gone_with_it(tmp_path: Path) -> None:
    with lock_folder(tmp_path / "a" / "b", "it"), lock_folder(tmp_path / "a" / "b", "it"):
        assert (tmp_path / "a" / "b" / ".lock").is_file()
    assert list(tmp_path.iterdir()) == []
    with lock_file(tmp_path / "a" / "out.jsonl", "it"):
        (tmp_path / "a" / "out.jsonl").write_text("")
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["out.jsonl"]


def test_a_forked_process_does_not_open_its_parents_lock(tmp_path: Path) -> None:
    lock = lock_folder(tmp_path, "it")
    if (child := os.fork()) == 0:
        lock.release()
        os._exit(0)
    os.waitpid(child, 0)
    assert (tmp_path / ".lock").is_file()
    code = "import sys, pathlib; from recollect.files.locks import lock_folder as f; f(pathlib.Path(sys.argv[1]), 'x')"
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, check=False).returncode
    lock.release()


def test_a_place_that_cannot_be_locked_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".lock").mkdir()
    with pytest.raises(BadInput, match="it cannot be locked"):
        lock_folder(tmp_path, "it")


@pytest.mark.parametrize("key", ["unified_dir", "sft_data_dir", "rewards_file", "evaluation_dir"])
def test_pipelines_that_share_a_folder_do_not_run_at_once(key: str, tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text(json.dumps({"question": "1 + 1?", "answer": "2"}) + "\n")
    plan = {"agents": {"math": {"questions": "q.jsonl"}}, "out": "mine", key: "data/shared"}
    (tmp_path / "plan.yaml").write_text(json.dumps(plan))
    with held(tmp_path / "data" / ".shared.lock") as number:
        done = run("pipeline", "plan.yaml", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert f"{key}=data/shared is in use by process {number}" in done.stderr
