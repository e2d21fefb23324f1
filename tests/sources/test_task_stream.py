"""Which made-up tasks a model is measured on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recollect.config.aliases import sampling_seed
from recollect.config.compose import compose
from recollect.sources.task_stream import TaskStream, held_out
from recollect.types import BadInput

RECIPES = ["needle", "ledger", "arithmetic", "react_search", "code", "gui_screen", "count_shapes"]


@pytest.mark.parametrize("recipe", RECIPES)
def test_fresh_held_out_tasks_are_others_and_as_many(recipe: str) -> None:
    make = lambda first: held_out(compose(recipe, [f"evaluation.first={first}"]), 1, 20)
    usual, later, fresh = make(0), make(10), make(5000)
    assert [t.id for t in usual[10:]] == [t.id for t in later[:10]]
    assert len(later) == 20
    assert not {t.id for t in usual} & {t.id for t in fresh}
    assert [t.question for t in usual] != [t.question for t in fresh]


def order(folder: Path, *settings: str) -> list[str]:
    """The questions of an epoch of twelve tasks."""
    rows = [{"question": f"q{i}", "answer": str(i)} for i in range(12)]
    (folder / "t.json").write_text(json.dumps(rows))
    words = [f"data.train_files={folder / 't.json'}", "agent.agent_type=chat", "data.train_batch_size=2", *settings]
    stream = TaskStream(compose(None, words))
    return [task.question for step in range(stream.steps()) for task in stream.take(step)]


def test_data_seed_is_the_order_and_nothing_else(tmp_path: Path) -> None:
    one, other = order(tmp_path, "data.seed=1"), order(tmp_path, "data.seed=2")
    assert sorted(one) == sorted(other)
    assert one != other
    assert order(tmp_path, "data.seed=1", "trainer.seed=9") == one
    assert order(tmp_path, "trainer.seed=1") == one  # which is the default of data.seed


def test_train_max_samples(tmp_path: Path) -> None:
    assert order(tmp_path, "data.train_max_samples=4", "data.shuffle=False") == ["q0", "q1", "q2", "q3"]
    drawn = order(tmp_path, "data.train_max_samples=4")
    assert len(set(drawn)) == 4
    assert set(order(tmp_path, "data.train_max_samples=4", "data.seed=3")) != set(drawn)
    for count in (-1, 12, 40):
        assert sorted(order(tmp_path, f"data.train_max_samples={count}")) == sorted(order(tmp_path))


def test_the_sampling_seed_is_the_runs_unless_it_is_given() -> None:
    assert sampling_seed(compose("needle", ["trainer.seed=3"])) == 3
    assert sampling_seed(compose("needle", ["trainer.seed=3", "actor_rollout_ref.rollout.seed=0"])) == 0


GUI = ["agent.agent_type=gui", "agent.reward_name=gui_goal", "actor_rollout_ref.model.path=scratch_vision"]


def test_tasks_that_the_agent_gui_cannot_attempt_are_refused_before_a_run(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"data.made_up=needle, agent.agent_type=gui: task .* describes no screen"):
        TaskStream(compose(None, GUI))
    file = tmp_path / "rows.jsonl"
    for row, why in (
        ({}, "rows.jsonl, line 1: task 0 describes no screen: gui.environment=screen wants one under `screen`"),
        ({"screen": {"rows": 2}}, "rows.jsonl, line 1: task 0 describes no screen that can be made: columns: "),
    ):
        file.write_text(json.dumps({"question": "q", "answer": "", **row}) + "\n")
        with pytest.raises(BadInput, match=why):
            TaskStream(compose(None, [*GUI, f"data.train_files={file}"]))
        with pytest.raises(BadInput, match=why):
            held_out(compose(None, [*GUI, f"data.val_files={file}"]))
