"""Every benchmark of `benchmarks/gpu` works without a GPU: `--device cpu` measures the embedded model."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TWINS = {"update": "tree_update", "step": "grpo_step", "document": "long_document"}
SHORT = ["--dtypes", "float32", "--prompt-tokens", "16", "--new-tokens", "4", "--threads", "1", "--repeats", "1"]


def bench(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks/gpu" / f"{name}.py"), *arguments]
    env = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)


@pytest.mark.parametrize("name", ["update", *(pytest.param(n, marks=pytest.mark.slow) for n in ("step", "document"))])
def test_the_cpu_has_a_script_of_its_own(name: str) -> None:
    done = bench(name, "--device", "cpu", "--help")
    assert done.returncode == 0, done.stderr
    assert f"usage: {TWINS[name]}.py" in done.stdout


def test_help_and_errors_say_what_to_do() -> None:
    done = bench("decode", "--help")
    assert "--cases" in done.stdout
    assert "--device cpu runs benchmarks/engine.py" in done.stdout
    done = bench("decode", "--device", "cuda")
    assert done.returncode == 2
    assert "no CUDA device here; --device cpu" in done.stderr


def test_decoding_is_measured_without_a_gpu() -> None:
    done = bench("decode", *SHORT)  # without --device: what there is
    assert done.returncode == 0, done.stderr
    ratios = re.findall(r"^tiny +float32 .* ([\d.]+)× \(≥", done.stdout, re.MULTILINE)
    assert len(ratios) == 2, done.stdout
    assert all(float(ratio) > 0 for ratio in ratios)


def test_what_attempts_share_of_screenshots_is_computed_once() -> None:
    command = [
        sys.executable,
        str(ROOT / "benchmarks/screenshots.py"),
        "--cells",
        "4",
        "--repeats",
        "1",
        "--threads",
        "1",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    ratios = re.findall(r"tokens ([\d.]+)×", done.stdout)
    assert len(ratios) == 2, done.stdout
    assert all(float(ratio) > 7 for ratio in ratios)
    assert "tower frozen" in done.stdout
    assert "agree" in done.stdout
    assert " 8 images computed" in done.stdout


@pytest.mark.slow
def test_memory_is_measured_without_a_gpu() -> None:
    done = bench("memory", "--device", "cpu", "--steps", "5")
    assert done.returncode == 0, done.stderr
    (values,) = re.findall(r"memory/resident_mb: step 5 .*\n(.*)\n", done.stdout)
    assert len(values.split()) == 5
    assert min(map(int, values.split())) > 100
