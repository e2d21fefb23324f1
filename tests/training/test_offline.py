"""Reinforcement from stored trajectories, without sampling."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from recollect.chat import Renderer
from recollect.config import Algorithm
from recollect.config.compose import compose
from recollect.models.load import load_tokenizer
from recollect.packing.batch import Batch, build_batch
from recollect.runs.directory import RunDirectory
from recollect.runtime.console import Console
from recollect.training.learner.local_learner import LocalLearner
from recollect.training.learner.trained_model import TrainedModel
from recollect.training.rl.annotate import annotate
from recollect.training.rl.estimate import Estimate, estimate
from recollect.training.rl.offline import OfflineStream, Stored, compared, imitation, read_offline
from recollect.training.train_run import TrainRun
from recollect.types import BadInput
from tests.conftest import make_pair
from tests.sources.test_stored_tasks import stored_run, unified

SMALL = ["data.val_max_samples=2", "evaluation.lengths=[1]", "evaluation.tasks=[2]", "trainer.threads=1"]


def test_those_without_logprobs_are_for_sft_and_it_says_so(tmp_path: Path) -> None:
    with_ids = stored_run(tmp_path / "a", {"1": [0.0, 1.0], "2": [0.5, 0.1], "3": [1.0]})
    without = stored_run(tmp_path / "b", {"4": [1.0, 0.2]}, logprobs=False)
    (tmp_path / "c.jsonl").write_text(json.dumps(unified("5", None)))
    said: list[str] = []
    cfg = compose("needle", [f"data.offline_files=[{with_ids},{without},{tmp_path / 'c.jsonl'}]", "min_reward=0.5"])
    stored = read_offline(cfg, said.append)
    assert [g.task.id for g in stored.groups] == ["1", "2", "3"]
    assert [row["task_id"] for _, row in stored.imitated] == ["4"]
    assert stored.unused == 2
    assert cfg.sft.steps == 1
    assert "5 attempts at 3 tasks carry sampled ids" in said[0]
    assert "1 trajectories carry none; they are used for SFT only" in said[1]
    stream = OfflineStream(compose("needle", ["data.train_batch_size=2"]), stored)
    assert stream.steps() == 2
    assert [[t.id for t in stream.take(i)] for i in range(2)] == [["1", "2"], ["3"]]
    with pytest.raises(BadInput, match="nothing to learn from"):
        read_offline(compose("needle", [f"data.offline_files={tmp_path / 'c.jsonl'}", "min_reward=0.5"]), said.append)


def test_a_reward_that_is_no_number_is_refused_with_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({**unified("5", None), "reward": "high"}))
    with pytest.raises(BadInput, match=r"rows\.jsonl, line 1: reward has to be a number or null, not 'high'"):
        read_offline(compose("needle", [f"data.offline_files={file}"]), lambda text: None)


def test_single_attempts_are_compared_within_their_source(tmp_path: Path) -> None:
    run = stored_run(tmp_path / "a", {"1": [0.0], "2": [1.0], "3": [0.0, 1.0]})
    stored = read_offline(compose("needle", [f"data.offline_files={run}"]), lambda text: None)
    assert [len(g.trajectories) for g in compared(stored.groups)] == [2, 2]


def test_the_ratio_is_to_the_stored_logprobs(tmp_path: Path) -> None:
    run = stored_run(tmp_path / "a", {"1": [0.0, 1.0]})
    cfg = compose("needle", [f"data.offline_files={run}"])
    batch, _ = build_batch(read_offline(cfg, lambda text: None).groups)
    _, model = make_pair("Qwen2")
    annotations = annotate(
        cfg, LocalLearner(cfg, TrainedModel(model, cfg.sft.optim, 1, torch.float32)), None, None, batch
    )
    assert annotations.old is not None
    assert np.allclose(annotations.old, [-1.0, -2.0, -0.5] * 2)


def test_a_run_learns_from_what_another_sampled(tmp_path: Path, small_model: Path) -> None:
    reward = tmp_path / "reward.py"
    reward.write_text("def some(answer):\n    return sum(answer.encode()) % 7 / 6\n")
    common = [f"actor_rollout_ref.model.path={small_model}", f"agent.reward_name={reward}:some", *SMALL]
    first = ["data.train_batch_size=4", "trainer.total_training_steps=2", "data.needle.chunks=1"]
    TrainRun(compose("needle", [*common, *first, f"trainer.default_local_dir={tmp_path / 'run'}"]), Console(True)).fit()
    more = [f"data.offline_files={tmp_path / 'run'}", f"trainer.default_local_dir={tmp_path / 'off'}"]
    report = TrainRun(compose("needle", [*common, *more, "data.train_batch_size=3"]), Console(True)).fit()
    assert report["steps"] == 3  # 8 groups, 3 at a time
    rows = [json.loads(line) for line in (tmp_path / "off" / "metrics.jsonl").read_text().splitlines()]
    steps = [r for r in rows if "reward/mean" in r]
    assert all(r["actor/grad_norm"] > 0 for r in steps)
    assert steps[0]["actor/logprob_drift"] < 0.05  # the weights that sampled them
    assert json.loads((tmp_path / "off" / "fidelity.json").read_text())["trained_tokens"] > 0


def test_ids_of_another_tokenizer_are_refused(tmp_path: Path, small_model: Path) -> None:
    run = stored_run(tmp_path / "a", {"1": [0.0, 1.0]})
    from recollect.training.rl.offline import check_ids

    stored = read_offline(compose("needle", [f"data.offline_files={run}"]), lambda text: None)
    check_ids(stored, 23)
    with pytest.raises(BadInput, match="another tokenizer"):
        check_ids(stored, 22)


@pytest.mark.parametrize("group_by", ["question", "role", "task"])
def test_an_offline_step_has_the_advantages_of_the_step_that_was_stored(
    tmp_path: Path, small_model: Path, monkeypatch: pytest.MonkeyPatch, group_by: str
) -> None:
    """Of tasks with several questions: the turns of each, and the memory's, earn what they earned when sampled."""
    seen: list[tuple[list[list[int]], np.ndarray]] = []

    def watched(cfg: Algorithm, batch: Batch, *given: Any) -> Estimate:
        made = estimate(cfg, batch, *given)
        seen.append(([ids.tolist() for ids in batch.sequences], made.advantages))
        return made

    monkeypatch.setattr("recollect.training.rl.step.estimate", watched)
    score = tmp_path / "score.py"
    score.write_text("def some(answer):\n    return sum(answer.encode()) % 7 / 6\n")
    common = [
        *(f"actor_rollout_ref.model.path={small_model}", f"memory.scores=[{score}:some]", *SMALL),
        *("sft.steps=0", "actor_rollout_ref.rollout.n=3", "data.train_batch_size=2", "data.max_response_length=8"),
        *(f"algorithm.group_by={group_by}", "trainer.device=cpu"),
    ]
    first = [f"trainer.default_local_dir={tmp_path / 'run'}", "trainer.total_training_steps=1"]
    TrainRun(compose("ledger", [*common, *first]), Console(True)).fit()
    more = [f"trainer.default_local_dir={tmp_path / 'off'}", f"data.offline_files={tmp_path / 'run'}"]
    TrainRun(compose("ledger", [*common, *more]), Console(True)).fit()
    online, offline = seen
    assert online[0] == offline[0]
    assert len(np.unique(online[1])) > 6  # the questions of an attempt differ
    assert np.array_equal(online[1], offline[1])


def test_trajectories_without_a_trainable_turn_are_refused(tmp_path: Path, small_model: Path) -> None:
    rows = list(RunDirectory(stored_run(tmp_path, {"7": [1.0]})).trajectories())
    for row in rows:
        row["turns"] = [{**turn, "trainable": False, "is_trainable": False} for turn in row["turns"]]
    renderer = Renderer(load_tokenizer(str(small_model)))
    with pytest.raises(BadInput, match="line 1: no turn of these trajectories can be learned from"):
        imitation(compose("needle", []), Stored(imitated=[("f, line 1", row) for row in rows]), renderer)
