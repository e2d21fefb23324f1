"""A model on a file, several times, with a card to repeat it by."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from recollect.runtime.console import Console
from recollect.training.sft.measure import per_token
from recollect.types import BadInput, Group, Score, Task, Trajectory
from recollect.workflows.eval.seeds import over_seeds, run_seeds

SETTINGS = ["agent.agent_type=chat", "agent.reward_name=qa_em", "data.max_response_length=4", "trainer.threads=1"]


def groups(*rewards: float) -> list[Group]:
    return [Group(Task(str(i), "q"), [Trajectory(str(i), 0, score=Score(r))]) for i, r in enumerate(rewards)]


def test_intervals_are_over_tasks_not_over_attempts() -> None:
    once, thrice = over_seeds([groups(1, 0, 1, 0)]), over_seeds([groups(1, 0, 1, 0)] * 3)
    assert {k: once[k] for k in ("mean", "low", "high", "n")} == {k: thrice[k] for k in ("mean", "low", "high", "n")}
    mixed = over_seeds([groups(1, 0), groups(0, 0), groups(1, 1)])
    assert mixed["seeds"] == [0.5, 0.0, 1.0]
    assert mixed["mean"] == pytest.approx(0.5)
    assert mixed["std"] == pytest.approx(0.5)


def test_tasks_are_attempted_with_every_seed(tmp_path: Path, small_model: Path) -> None:
    rows = [{"question": f"say {i}", "answer": str(i), "data_source": "ab"[i % 2]} for i in range(4)]
    (tmp_path / "t, [1].jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = [
        run_seeds(str(small_model), [str(tmp_path / "t, [1].jsonl")], 3, list(SETTINGS), tmp_path / name, Console(True))
        for name in ("x", "y")
    ]
    assert found[0] == found[1] == json.loads((tmp_path / "x" / "metrics.json").read_text())
    assert found[0]["seeds"] == [0, 1, 2]
    assert set(found[0]["metrics"]) == {"accuracy", "accuracy/a", "accuracy/b"}
    assert len(found[0]["metrics"]["accuracy"]["seeds"]) == 3
    card = found[0]["card"]
    assert card == json.loads((tmp_path / "x" / "card.json").read_text())
    assert card["versions"]["torch"]
    assert len(card["config_hash"]) == len(card["data_hash"]["t, [1].jsonl"]) == len(card["model_hash"]) == 64
    assert card["hardware"]["cores"] >= 1
    with pytest.raises(BadInput, match="--seeds 0"):
        run_seeds(str(small_model), [str(tmp_path / "t, [1].jsonl")], 0, list(SETTINGS), tmp_path / "z", Console(True))


def test_conversations_are_predicted(tmp_path: Path, small_model: Path) -> None:
    rows = [{"prompt": f"say {i}", "response": str(i)} for i in range(5)]
    (tmp_path / "c.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = run_seeds(str(small_model), [str(tmp_path / "c.jsonl")], 1, [], tmp_path / "x", Console(True))
    assert found["kind"] == "conversations"
    again = run_seeds(str(small_model), [str(tmp_path / "c.jsonl")], 3, [], tmp_path / "y", Console(True))
    assert again["metrics"] == found["metrics"]
    assert found["metrics"]["loss"]["n"] == 5
    assert found["metrics"]["loss"]["low"] < found["metrics"]["loss"]["mean"] < found["metrics"]["loss"]["high"]
    assert 0 <= found["metrics"]["token_accuracy"]["mean"] <= 1


def test_means_are_those_of_tokens_and_intervals_those_of_conversations() -> None:
    rng = np.random.default_rng(0)
    tokens, trials = rng.integers(1, 40, 200).astype(float), 400
    rates = rng.beta(2, 5, (trials, 200))
    hits = rng.binomial(tokens.astype(int), rates).astype(float)
    found = [per_token(row, tokens) for row in hits]
    assert found[0][0] == pytest.approx(hits[0].sum() / tokens.sum())
    inside = np.mean([low <= 2 / 7 <= high for _, low, high in found])
    assert 0.9 < inside < 0.985
    assert per_token(np.array([3.0]), np.array([4.0])) == (0.75, 0.75, 0.75)
    mean, low, high = per_token(np.array([1.0, 2.0]), np.array([10.0, 20.0]))  # they agree: nothing is in doubt
    assert (low, high) == (pytest.approx(mean), pytest.approx(mean))
