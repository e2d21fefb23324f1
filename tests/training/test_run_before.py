"""A run that an earlier version wrote resumes, evaluates and exports as it did there.

`fixtures/run_before.tgz` was made by commit 663dfec: its command, the run cut back to step 2 of 4, the weights that it
had after step 4, and its metrics.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.commands import run

ARCHIVE = Path(__file__).parents[1] / "fixtures" / "run_before.tgz"


@pytest.fixture
def before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rewards(path: Path) -> list[float]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [row["reward/mean"] for row in rows if "reward/mean" in row]


def test_it_resumes_to_the_same_weights(before: Path) -> None:
    done = run(*Path("command.txt").read_text().split(), cwd=before)
    assert done.returncode == 0, done.stderr
    weights, expected = load_file("run/checkpoints/step-4/model.safetensors"), load_file("expected.safetensors")
    start = load_file("run/checkpoints/step-2/model.safetensors")
    assert weights.keys() == expected.keys()
    apart = lambda a, b: max(float((a[name] - b[name]).abs().max()) for name in expected)
    assert apart(weights, expected) < 1e-4  # another processor may round another way
    assert apart(weights, start) > 5e-4
    assert rewards(Path("run/metrics.jsonl")) == pytest.approx(rewards(Path("expected-metrics.jsonl")))
    assert json.loads(Path("run/fidelity.json").read_text())


def test_it_evaluates_and_exports(before: Path) -> None:
    done = run("eval", "run", cwd=before)
    assert done.returncode == 0, done.stderr
    assert "needle: accuracy" in done.stdout + done.stderr
    done = run("export", "run", "--out", "out", cwd=before)
    assert done.returncode == 0, done.stderr
    exported, kept = load_file("out/model.safetensors"), load_file("run/checkpoints/step-2/model.safetensors")
    assert all(torch.equal(exported[name], kept[name]) for name in kept)


def test_its_trajectories_are_read(before: Path) -> None:
    done = run("convert", "run/trajectories", "--out", "unified.jsonl", "--domain", "mhqa", cwd=before)
    assert done.returncode == 0, done.stderr
    assert len(Path("unified.jsonl").read_text().splitlines()) == 16
