"""Following a file of metrics: every row once, whatever happens to the run or to the tracker."""

from __future__ import annotations

import importlib.util
import json
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recollect.config import Config
from recollect.registries import TRACKERS
from recollect.runs.directory import RunDirectory
from recollect.runs.trackers import follow, worker
from recollect.runs.trackers.chosen_trackers import trackers_of
from recollect.runs.trackers.worker import feed, label, numbers, scrub
from recollect.runtime.console import Console
from recollect.types import BadInput


def write(path: Path, *rows: Any, end: str = "\n") -> None:
    with path.open("a") as file:
        file.write("".join(json.dumps(row) + end for row in rows))


class Shown:
    """A tracker that keeps what it is shown."""

    def __init__(self, fail_at: int = 10**9) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.fail_at = fail_at

    def log(self, step: int, row: Any) -> None:
        if len(self.rows) == self.fail_at:
            raise OSError("no more")
        self.rows.append((step, dict(row)))


def test_a_growing_file_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    turns: list[Any] = [
        lambda: False,  # there is no file yet
        lambda: (write(path, {"step": 1}), write(path, {"step": 2, "a": 1}, end=""), False)[-1],  # a half row
        lambda: (write(path, end=""), path.open("a").write("\n"), False)[-1],
        lambda: (write(path, {"step": 3}), True)[-1],
    ]
    waits: Iterator[Any] = iter(turns)
    assert [r["step"] for r in worker.follow(path, lambda: next(waits)())] == [1, 2, 3]


def test_a_file_that_was_cut_is_read_anew(tmp_path: Path) -> None:
    path, sent = tmp_path / "metrics.jsonl", tmp_path / "sent"
    write(path, {"step": 1, "x": 1}, {"step": 2, "x": 2}, {"step": 3, "x": 3})

    def cut() -> bool:
        path.write_text("")
        write(path, {"step": 1, "x": 1})
        return False

    waits: Iterator[Any] = iter([lambda: False, cut, lambda: (write(path, {"step": 2, "x": 2}, {"step": 4}), True)[-1]])
    shown = Shown()
    feed(shown, worker.follow(path, lambda: next(waits)()), sent)  # type: ignore[arg-type]
    assert [step for step, _ in shown.rows] == [1, 2, 3, 4]


def test_nothing_is_shown_twice_and_what_was_missed_is_caught_up(tmp_path: Path) -> None:
    sent, rows = tmp_path / "sent", [{"step": i, "reward/mean": i} for i in range(4)]
    first, second = Shown(fail_at=2), Shown()
    with pytest.raises(OSError, match="no more"):
        feed(first, iter(rows), sent)  # type: ignore[arg-type]
    rows.insert(1, {"step": 0, "phase": "base", "val/x/accuracy": 0.5})
    feed(second, iter(rows), sent)  # type: ignore[arg-type]
    assert [step for step, _ in first.rows] == [0, 1]
    assert [step for step, _ in second.rows] == [0, 2, 3]


def test_rows_of_different_kinds_at_a_step_are_different() -> None:
    made = [{"step": 4, "reward/mean": 1}, {"step": 4, "phase": "rl", "val/a/n": 1}, {"step": 4, "val/a/n": 1}]
    made += [{"step": 4, "phase": "sft", "sft/loss": 1}, {"step": 5, "reward/mean": 1}]
    assert len({label(row) for row in made}) == len(made)


def test_only_finite_numbers_are_shown() -> None:
    assert numbers({"step": 3, "phase": "rl", "a": 1, "b": 0.5, "c": None, "d": float("inf")}) == {"a": 1.0, "b": 0.5}


def test_secrets_are_scrubbed() -> None:
    text = scrub(
        "at https://me:pass@host/x\nkey abcdef123 of HOME /root", {"SOME_API_KEY": "abcdef123", "HOME": "/root"}
    )
    assert text == "at https://host/x key … of HOME /root"


# ---- the process ----


@pytest.fixture
def config(tmp_path: Path) -> Config:
    cfg = Config()
    cfg.trainer.default_local_dir = str(tmp_path / "run")
    return cfg


class Heard(Console):
    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.warned: list[str] = []
        self.said: list[str] = []

    def warn(self, text: str) -> None:
        self.warned.append(text)

    def say(self, text: str = "") -> None:
        self.said.append(text)


def test_unknown_trackers_are_refused_and_missing_ones_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert trackers_of(["console", "jsonl"]) == []
    with pytest.raises(BadInput, match="neptune is unknown; known: console, jsonl, tensorboard, wandb"):
        trackers_of(["neptune"])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for name in TRACKERS:
        heard: list[str] = []
        assert trackers_of(["console", name], heard.append) == []
        assert f"pip install 'recollect-rl[{name}]'" in heard[0]


def test_a_tracker_that_cannot_open_stops_nothing(config: Config) -> None:
    run, heard = RunDirectory.start(config), Heard()
    (run.path / "trackers").mkdir()
    (run.path / "trackers" / "tensorboard").touch()  # where its folder should be
    config.trainer.logger = ["tensorboard"]
    with follow.tracking(config, run, heard):
        run.log({"step": 1, "reward/mean": 1.0})
    (warning,) = heard.warned
    assert "tracker tensorboard stopped (FileExistsError" in warning
    assert "training goes on" in warning


def test_a_tracker_that_hangs_is_left_behind(config: Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "tensorboard").mkdir()
    (tmp_path / "tensorboard" / "__init__.py").write_text("import time; time.sleep(1000)")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{':'.join(filter(None, sys.path))}")
    monkeypatch.setattr(follow, "CLOSING", 3.0)
    config.trainer.logger = ["tensorboard"]
    run, heard, start = RunDirectory.start(config), Heard(), time.monotonic()
    with follow.tracking(config, run, heard):
        run.log({"step": 1, "reward/mean": 1.0})
        assert time.monotonic() - start < 30  # training does not wait for it, for 1000
    assert time.monotonic() - start < 60
    assert heard.warned == ["tracker tensorboard did not finish within 3 s and was left behind"]


@pytest.fixture
def silent_server() -> Iterator[str]:
    """An address that accepts connections and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(64)
        yield f"127.0.0.1:{server.getsockname()[1]}"
