"""A server that clients train is sent what would break a job: numbers that no float can be, floods, other files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serve.arbor.arbor_client import Arbor, asking, nested, rewarded

HUGE = 10**400


@pytest.fixture(scope="module")
def arbor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arbor]:
    made = Arbor(tmp_path_factory.mktemp("jobs"))
    yield made
    made.stop()


def batch(**first: Any) -> list[dict[str, Any]]:
    """A group of four, whose first completion is other than it should be."""
    rows = [rewarded(asking("a"), "x", float(i)) for i in range(4)]
    return [rows[0] | first, *rows[1:]]


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"batch": batch(reward=HUGE)}, "reward"),
        ({"batch": batch(reward=-HUGE)}, "reward"),
        ({"batch": batch(), "batch_id": HUGE}, "batch_id"),
        ({"batch": batch(), "metrics": {f"m{i}": 1 for i in range(300)}}, "metrics"),
        ({"batch": batch() * 1000}, "num_generations=4"),
    ],
    ids=["reward", "negative reward", "batch id", "metrics", "batch"],
)
def test_a_step_with_too_much_is_refused(arbor: Arbor, body: dict[str, Any], word: str) -> None:
    job = arbor.begin()
    arbor.pending(job)
    answer = arbor.grpo("step", {"job_id": job, **body}, 400)
    assert word in answer["error"]["message"]


def test_metrics_that_no_float_can_be_are_left_out(arbor: Arbor) -> None:
    job = arbor.begin()
    said = [arbor.chat(job, "a")[0] for _ in range(4)]
    group = [rewarded(asking("a"), text, float(i)) for i, text in enumerate(said)]
    number = arbor.pending(job)[0]
    assert arbor.step(job, number, group, metrics={"huge": HUGE, "large": 10**300})["step"] == 1


def test_what_every_answer_repeats_is_bounded(arbor: Arbor) -> None:
    job = arbor.begin()
    body = {"job_id": job, "checkpoint_name": "best", "metadata": {"a": list(range(20_000))}}
    assert "metadata" in arbor.grpo("checkpoint", body, 400)["error"]["message"]
    body["metadata"] = {"a": list(range(200))}
    assert arbor.grpo("checkpoint", body)["checkpoints"]["best"]["metadata"] == body["metadata"]


def test_a_model_is_no_device_and_no_pipe(tmp_path: Path) -> None:
    """Where clients may name models, folders with strange files are refused, and soon."""
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "config.json")
    (tmp_path / "device").mkdir()
    (tmp_path / "device" / "config.json").symlink_to("/dev/zero")
    server = Arbor(tmp_path / "jobs", only=None)
    try:
        for name in ("/dev/zero", "/proc/self/mem", str(tmp_path / "device"), str(tmp_path / "pipe"), "a\0b"):
            assert "model" in server.grpo("initialize", nested(model=name), 404)["error"]["message"], name
    finally:
        server.stop()
