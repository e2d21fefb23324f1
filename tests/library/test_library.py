"""recollect from Python does what the command line does, and takes what people of notebooks have."""

from __future__ import annotations

import asyncio
import doctest
import gc
import importlib
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file

import recollect
from recollect.engine import EngineLoop
from recollect.library import event_loops, given
from recollect.training.interrupt import Interrupted
from tests.commands import run

SMALL: dict[str, Any] = {
    "data.train_batch_size": 2,
    "actor_rollout_ref.rollout.n": 2,
    "data.needle.chunks": 1,
    "data.val_max_samples": 2,
    "evaluation.lengths": [1],
    "evaluation.tasks": [2],
    "trainer.total_training_steps": 2,
    "trainer.threads": 1,
}
ROWS = [{"question": f"What is {i}?", "context": f"It is {i}.", "answer": str(i)} for i in range(6)]


def length(answer: str) -> float:
    """A reward that differs from answer to answer."""
    return sum(answer.encode()) % 7 / 6


def train(out: Path, model: Path, **more: Any) -> recollect.Result:
    settings = {**SMALL, **more.pop("settings", {})}
    return recollect.train(model=model, reward=length, out=out, quiet=True, settings=settings, **more)


def weights(out: Path, step: int = 2) -> dict[str, torch.Tensor]:
    return load_file(out / "checkpoints" / f"step-{step}" / "model.safetensors")


def test_python_and_the_command_line_end_with_the_same_weights(tmp_path: Path, small_model: Path) -> None:
    train(tmp_path / "python", small_model)
    reward = f"{Path(__file__)}:length"
    settings = [f"{key}={value}".replace(" ", "") for key, value in SMALL.items()]
    place = [f"trainer.default_local_dir={tmp_path / 'command'}", f"actor_rollout_ref.model.path={small_model}"]
    done = run("train", "needle", *place, *settings, f"agent.reward_name={reward}")
    assert done.returncode == 0, done.stderr
    mine, theirs = weights(tmp_path / "python"), weights(tmp_path / "command")
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


def test_a_run_goes_on_where_it_was_and_a_finished_one_is_reported(tmp_path: Path, small_model: Path) -> None:
    steps: list[float] = []
    whole = train(tmp_path / "whole", small_model)

    def stop(row: dict[str, Any]) -> None:
        steps.append(row["step"])
        if len(steps) == 1:
            os.kill(os.getpid(), signal.SIGINT)  # as Ctrl-C

    with pytest.raises(Interrupted):
        train(tmp_path / "cut", small_model, on_step=stop)
    again = train(tmp_path / "cut", small_model, on_step=stop)
    assert steps == [1, 2]
    assert again.report.reward == whole.report.reward
    mine, theirs = weights(tmp_path / "cut"), weights(tmp_path / "whole")
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    assert train(tmp_path / "cut", small_model).report == again.report


def test_it_works_inside_a_running_event_loop(tmp_path: Path, small_model: Path) -> None:
    async def cell() -> recollect.Result:
        return train(tmp_path / "loop", small_model)

    inside = asyncio.run(cell())
    train(tmp_path / "plain", small_model)
    mine, theirs = weights(tmp_path / "loop"), weights(tmp_path / "plain")
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)

    async def more() -> str:
        with inside.policy as policy:
            return policy.generate("hello", max_tokens=3).text + policy.ask("mira holds it.", "Who holds it?")

    assert isinstance(asyncio.run(more()), str)


def test_the_first_interrupt_asks_and_the_second_ends() -> None:
    started, asked, ended = threading.Event(), threading.Event(), []

    def work() -> str:
        started.set()
        assert asked.wait(60)
        return "saved"

    def interrupt() -> None:
        started.wait(60)
        os.kill(os.getpid(), signal.SIGINT)

    async def cell() -> None:
        threading.Thread(target=interrupt).start()
        ended.append(event_loops.run_anywhere(work, asked.set))

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(cell())
        loop.close()
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended == ["saved"]


def test_on_step_ends_the_run_with_false_alone(tmp_path: Path, small_model: Path) -> None:
    seen: list[float] = []

    def pruned(row: dict[str, Any]) -> bool:
        seen.append(row["step"])
        return False

    result = train(tmp_path / "a", small_model, on_step=pruned, settings={"trainer.total_training_steps": 5})
    assert (seen, result.report.steps) == ([1], 1)
    seen.clear()
    train(tmp_path / "b", small_model, on_step=lambda row: seen.append(row["step"]))
    assert seen == [1, 2]


def test_a_loaded_policy_is_used_and_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    with recollect.load("tiny") as policy:
        first = policy.generate("hello", max_tokens=8, temperature=1.0, seed=3)
        assert first == policy.generate([{"role": "user", "content": "hello"}], max_tokens=8, temperature=1.0, seed=3)
        assert first != policy.generate("hello", max_tokens=8, temperature=1.0, seed=4)
        monkeypatch.setattr("recollect.samplers.checkpoint_roles.acting_roles", None)  # nothing is loaded again
        assert recollect.evaluate(policy, tasks=ROWS, quiet=True).accuracy["n"] == len(ROWS)
        assert policy.generate("hello", max_tokens=8, temperature=1.0, seed=3) == first


@pytest.mark.parametrize("form", ["list", "generator", "table", "tasks", "file"])
def test_tasks_come_in_every_form(form: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    made: dict[str, Any] = {
        "list": ROWS,
        "generator": (row for row in ROWS),
        "table": pa.Table.from_pylist(ROWS),
        "tasks": [recollect.Task(str(i), r["question"], r["context"], (r["answer"],)) for i, r in enumerate(ROWS)],
        "file": file,
    }
    file.write_text("".join(given._line(row, 1, "tasks") for row in ROWS))
    found = recollect.evaluate("tiny", tasks=made[form], quiet=True, out=tmp_path / "out")
    assert found.accuracy["n"] == len(ROWS)


class Frame:
    """As much of pandas as is asked of it."""

    columns = ("question", "answer")

    def to_dict(self, how: str) -> list[dict[str, Any]]:
        assert how == "records"
        return [{"question": "a?", "answer": "b", "context": float("nan")}]


def test_a_frame_is_rows_in_which_nan_is_nothing(tmp_path: Path) -> None:
    (path,) = given.files_of(Frame(), tmp_path, "tasks")
    assert Path(path).read_text() == '{"question": "a?", "answer": "b", "context": null}\n'
    assert given.files_of(Frame(), tmp_path, "tasks") == [path]


def test_functions_of_a_cell_and_of_a_module(tmp_path: Path, small_model: Path) -> None:
    assert given.name_of(length, "reward") == "tests.library.test_library:length"
    exec("def own(answer):\n    return 1.0", cell := {"__name__": "__main__"})
    assert given.name_of(cell["own"], "reward") == "python:own"

    async def agent(task: Any, session: Any, cfg: Any) -> str:
        return (await session.generate(task.question, max_tokens=4)).text

    result = recollect.train(
        model=small_model, tasks=ROWS, agent=agent, reward=cell["own"], out=tmp_path / "run", quiet=True, settings=SMALL
    )
    assert result.report.reward["last"] == 1.0
    assert len(result.run.trajectories(step=1)) == 4
    assert {row["reward"] for row in result.run.trajectories()} == {1.0}
    done = run("train", "--config", str(tmp_path / "run" / "config.yaml"))
    assert done.returncode == 2
    assert "python:" in done.stderr


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: recollect.train("nedle"), "no recipe nedle; did you mean needle?"),
        (lambda: recollect.train(settings={"trainer.seeds": 1}), "trainer.seeds"),
        (lambda: recollect.train(tasks=[]), "tasks holds no tasks"),
        (lambda: recollect.train(tasks={"train": ROWS}), "pick one"),
        (lambda: recollect.train(tasks=[{"question": object()}]), "row 1 cannot be written as JSON"),
        (lambda: recollect.train(tasks=["a", {"b": 1}]), "row 1: expected a mapping"),
        (lambda: recollect.train(reward=3), "reward is int"),  # type: ignore[arg-type]
        (lambda: recollect.train("two_stage"), "recollect.stages"),
        (lambda: recollect.load("/nowhere"), "/nowhere"),
        (lambda: recollect.Run("/nowhere"), "no run directory"),
        (lambda: recollect.evaluate("tiny", agent="nobody"), "agent.agent_type=nobody is unknown"),
    ],
)
def test_what_cannot_work_is_refused_in_a_sentence(call: Any, words: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(recollect.BadInput) as error:
        call()
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_two_trainings_after_one_another_free_what_they_took(tmp_path: Path, small_model: Path) -> None:
    def engines() -> int:
        gc.collect()
        return sum(isinstance(thing, EngineLoop) for thing in gc.get_objects())

    before = engines()
    for name in ("a", "b"):
        train(tmp_path / name, small_model)
    assert engines() == before


def test_rows_become_a_frame_where_pandas_is(tmp_path: Path, small_model: Path) -> None:
    rows = train(tmp_path / "run", small_model).run.metrics()
    assert [row["step"] for row in rows if "reward/mean" in row] == [1, 2]
    try:
        import pandas  # noqa: F401
    except ImportError:
        with pytest.raises(recollect.BadInput, match="pip install pandas"):
            rows.frame()
    else:
        assert len(rows.frame()) == len(rows)


def test_every_name_is_there_and_says_what_it_is() -> None:
    for name in recollect.__all__:
        assert getattr(recollect, name).__doc__, name
    assert set(recollect.__all__) <= set(dir(recollect))
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = recollect.trian  # type: ignore[attr-defined]


@pytest.mark.parametrize("module", ["train_from_python", "loaded_policy", "evaluate_policy", "run_view"])
def test_the_examples_run(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = doctest.testmod(importlib.import_module(f"recollect.library.{module}"))
    assert (found.failed, found.attempted > 0) == (0, True)
