"""This machine: steps of the embedded model with one process and with two ranks, and how fast weights go to storage.

Straight lines through the steps of small runs tell what a token costs, and what a step costs whatever its size. What
they say of two ranks with twice the attempts is compared with such a run.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

STEPS = 6
FEW, SOME, MANY = 4, 8, 16  # attempts at a task
STORED, PIECE = 512 << 20, 32 << 20  # bytes that are written and read, and of each tensor
SETTINGS = (
    *("trainer.device=cpu", "trainer.threads=1", "trainer.val_before_train=False", "trainer.save_freq=0"),
    *("sft.steps=0", "evaluation.tasks=[1]", "evaluation.lengths=[1]", "algorithm.adv_estimator=reinforce_plus_plus"),
)


@dataclass(frozen=True)
class Line:
    """Seconds of something that has a fixed part and a part for each token."""

    fixed: float
    token: float

    def at(self, tokens: float) -> float:
        """Seconds of so many tokens."""
        return self.fixed + self.token * tokens


def line(tokens: Sequence[float], seconds: Sequence[float]) -> Line:
    """The line through the points; neither part is negative."""
    slope, fixed = np.polyfit(tokens, seconds, 1)
    if fixed < 0:
        return Line(0.0, float(np.dot(tokens, seconds) / np.dot(tokens, tokens)))
    return Line(float(fixed), max(0.0, float(slope)))


@dataclass(frozen=True)
class Check:
    """A part of a step with two ranks: what the model says and what was measured."""

    part: str
    predicted: float
    measured: float


def steps(folder: Path, ranks: int, samples: int) -> list[dict[str, float]]:
    """The rows of metrics of a run, without the first step, which compiles."""
    place = folder / f"{ranks}-{samples}"
    settings = [
        *SETTINGS,
        f"trainer.n_gpus_per_node={ranks}",
        f"actor_rollout_ref.rollout.n={samples}",
        f"trainer.total_training_steps={STEPS}",
        f"trainer.default_local_dir={place}",
    ]
    command = [sys.executable, "-m", "recollect", "train", "needle", *settings, "--quiet"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    rows = [json.loads(text) for text in (place / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if "time/update" in row and row["step"] > 1]


def compare() -> Iterator[Check]:
    """Fit one process, take from two ranks what they cost beside it, and predict a larger step of two ranks."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        alone = [*steps(folder, 1, FEW), *steps(folder, 1, MANY)]
        two, larger = steps(folder, 2, SOME), steps(folder, 2, MANY)
    columns = {"rollout": "rollout/tokens", "update": "actor/tokens_computed"}
    for part, tokens in columns.items():
        fit = line([row[tokens] for row in alone], [row[f"time/{part}"] for row in alone])
        share = 0.5 if part == "update" else 1.0  # the engine of the driver samples for all ranks
        beside = float(np.median([row[f"time/{part}"] - fit.at(share * row[tokens]) for row in two]))
        said = [fit.at(share * row[tokens]) + beside for row in larger]
        yield Check(part, float(np.sum(said)), float(np.sum([row[f"time/{part}"] for row in larger])))
    synced = [row["time/sync"] for row in two]
    yield Check("sync", float(np.median(synced)), float(np.median([row["time/sync"] for row in larger])))


def storage(folder: Path) -> tuple[float, float]:
    """Bytes per second of weights that are written as a run does, and that are read and verified as a server does."""
    import torch
    from safetensors.torch import load_file

    from recollect.samplers.fleet.weight_store import WeightStore

    store = WeightStore(folder / "weights", torch.bfloat16)
    store.open()
    count = STORED // PIECE
    weights = [(f"layer.{number}", torch.randn(PIECE // 2).bfloat16()) for number in range(count)]
    start = time.perf_counter()
    stored = store.write(0, weights)
    written = time.perf_counter() - start
    start = time.perf_counter()
    for name, (_, digest) in stored.files.items():
        found = hashlib.sha256((stored.folder / name).read_bytes()).hexdigest()
        assert found == digest
        load_file(stored.folder / name)
    read = time.perf_counter() - start
    store.clear()
    return stored.size / written, stored.size / read
