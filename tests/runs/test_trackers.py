"""Every tracker against its real library, in its local mode: what it stored is read back and compared."""

from __future__ import annotations

import json
import math
import sqlite3
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recollect.config import Config
from recollect.runs.directory import RunDirectory
from recollect.runs.trackers import follow
from tests.runs.test_tracker_worker import Heard, silent_server

__all__ = ["silent_server"]
SECRET = "5ec2e7" * 6 + "abcd"
ROWS: list[dict[str, Any]] = [
    {"step": 0, "phase": "base", "val/x/mean@4": 0.25, "val/x/mean@4/low": 0.125},
    {"phase": "sft", "step": 1, "sft/loss": 2.0},
    *({"step": i, "reward/mean": i / 4, "rollout/failures": 0, "actor/kl": math.nan} for i in range(1, 6)),
    {"step": 5, "phase": "rl", "val/x/mean@4": 0.75, "val/x/mean@4/low": 0.5},
]
Points = dict[str, list[tuple[int, float]]]
WANTED: Points = {
    "val/x/mean@4": [(0, 0.25), (5, 0.75)],
    "val/x/mean@4/low": [(0, 0.125), (5, 0.5)],
    "sft/loss": [(1, 2.0)],
    "reward/mean": [(i, i / 4) for i in range(1, 6)],
    "rollout/failures": [(i, 0.0) for i in range(1, 6)],
}


def read_tensorboard(folder: Path) -> Points:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder))
    found.Reload()
    return {tag: [(e.step, e.value) for e in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def read_wandb(folder: Path) -> Points:
    """wandb's offline files: a log of protobuf records, in blocks of 32 KiB."""
    from wandb.proto.wandb_internal_pb2 import Record

    points: Points = {}
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        data, place, whole = path.read_bytes(), 7, b""
        while place + 7 <= len(data):
            room = 32768 - place % 32768
            if room < 7:
                place += room
                continue
            size, kind = struct.unpack("<HB", data[place + 4 : place + 7])
            whole += data[place + 7 : place + 7 + size]
            place += 7 + size
            if kind in (1, 4):  # all of a record, or its end
                record = Record.FromString(whole)
                whole = b""
                if record.WhichOneof("record_type") == "history":
                    row = {i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in record.history.item}
                    axis = row["sft/step"] if "sft/step" in row else row["step"]
                    for key, value in row.items():
                        if not key.startswith("_") and key not in ("step", "sft/step"):
                            points.setdefault(key, []).append((axis, value))
    return points


def read_swanlab(folder: Path) -> Points:
    from swanlab.proto.swanlab.record.v1.record_pb2 import Record
    from swanlab.sdk.internal.core_python.store import DataStoreReader

    points: Points = {}
    for path in sorted(folder.glob("run-*/*.swanlab")):
        reader = DataStoreReader()
        reader.open(str(path))
        for data in reader:
            record = Record.FromString(data)
            if record.WhichOneof("record_type") == "scalar":
                points.setdefault(record.scalar.key, []).append((record.scalar.step, record.scalar.value.number))
    return points


def read_mlflow(folder: Path) -> Points:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")
    (experiment,) = [e for e in client.search_experiments() if e.name == "recollect"]
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params["trainer.seed"] == "0"
    named = {key: key.replace("mean_4", "mean@4") for key in run.data.metrics}
    return {named[k]: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, k)] for k in named}


def read_trackio(folder: Path) -> Points:
    points: Points = {}
    with sqlite3.connect(folder / "recollect.db") as base:
        assert base.execute("select count(distinct run_name) from metrics").fetchone() == (1,)
        for step, data in base.execute("select step, metrics from metrics order by id"):
            for key, value in json.loads(data).items():
                points.setdefault(key, []).append((step, value))
    return points


READ: dict[str, Callable[[Path], Points]] = {
    "tensorboard": read_tensorboard,
    "wandb": read_wandb,
    "swanlab": read_swanlab,
    "mlflow": read_mlflow,
    "trackio": read_trackio,
}
SMALL = ("tensorboard", "wandb")  # installed wherever tests run; the others with `make test-trackers`
marked = lambda name: pytest.param(name, marks=() if name in SMALL else pytest.mark.trackers)


def track(out: Path, name: str, rows: list[dict[str, Any]], cut: int = 0) -> Heard:
    """One life of a run: metrics cut to where a checkpoint was, then some rows."""
    cfg, heard = Config(), Heard()
    cfg.trainer.default_local_dir, cfg.trainer.logger = str(out), ["console", name]
    run = RunDirectory.start(cfg)
    run.metrics_path.write_text("".join(run.metrics_path.read_text().splitlines(True)[:cut]) if cut else "")
    with follow.tracking(cfg, run, heard):
        for row in rows:
            run.log(row)
    return heard


@pytest.mark.parametrize("name", [marked(name) for name in READ])
def test_what_was_logged_can_be_read_back(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("WANDB_MODE", "WANDB_API_KEY", "SWANLAB_MODE", "SWANLAB_API_KEY", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(variable, raising=False)
    heard = track(tmp_path, name, ROWS[:5])
    assert heard.warned == []
    assert [name in line for line in heard.said] == [True]
    heard = track(tmp_path, name, ROWS[3:], cut=3)  # resumed from before rows that were shown already
    assert heard.warned == []
    assert READ[name](tmp_path / "trackers" / name) == WANTED


REMOTE = {
    "wandb": {"WANDB_API_KEY": SECRET, "WANDB_BASE_URL": "http://ADDRESS", "WANDB_MODE": "online"},
    "swanlab": {"SWANLAB_API_KEY": SECRET, "SWANLAB_API_HOST": "http://ADDRESS", "SWANLAB_MODE": "online"},
    "mlflow": {"MLFLOW_TRACKING_URI": f"http://me:{SECRET}@ADDRESS"},
}


@pytest.mark.parametrize("name", [marked(name) for name in REMOTE])
def test_a_server_that_never_answers(
    name: str, tmp_path: Path, silent_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training goes on, the end comes in bounded time, one line says so, and no secret is written."""
    for variable, value in REMOTE[name].items():
        monkeypatch.setenv(variable, value.replace("ADDRESS", silent_server))
    monkeypatch.setattr(follow, "CLOSING", 6.0)
    start = time.monotonic()
    heard = track(tmp_path, name, ROWS)
    assert time.monotonic() - start < 120
    (warning,) = heard.warned
    assert f"tracker {name}" in warning
    assert SECRET not in warning
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path


def test_wandb_offline_keeps_the_key_to_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    assert track(tmp_path, "wandb", ROWS).warned == []
    assert READ["wandb"](tmp_path / "trackers" / "wandb") == WANTED
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path
