"""What people see while a long step goes on."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console as RichConsole

from recollect.agents import progress as rollout_progress
from recollect.agents.progress import RolloutProgress, eta
from recollect.agents.session import Session
from recollect.chat import Renderer
from recollect.config.compose import compose
from recollect.runtime import console as consoles
from recollect.runtime.console import Console
from recollect.training.train_run import TrainRun
from recollect.types import Sampling, Task
from tests.standin import Standin, collect, collector
from tests.training.test_resume import command

# ---- lines and bars ----


class Clock:
    """A clock that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(consoles.time, "monotonic", lambda: self.now)


def test_lines_about_work_under_way_are_ten_seconds_apart(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock(monkeypatch)
    with Console().progress("RL step", 4) as bar:
        for second in range(35):
            clock.now = 100.0 + second
            bar.within(f"at {second}")
        bar("reward 0.5")
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "RL step 1/4: at 10",
        "RL step 1/4: at 20",
        "RL step 1/4: at 30",
        "RL step 1/4  ETA 102 s  reward 0.5",
    ]


def test_a_terminal_shows_the_same_beside_the_bar() -> None:
    console, out = Console(), io.StringIO()
    console.live, console.rich = True, RichConsole(file=out, force_terminal=True, width=160)
    with console.progress("RL step", 4) as bar:
        bar("reward [0.5]")
        bar.within("sampling 3/8 attempts")
    assert "reward [0.5]" in out.getvalue()
    assert "sampling 3/8 attempts" in out.getvalue()


def test_eta_follows_the_share_that_is_done() -> None:
    assert eta(0.25, 30.0) == "ETA 90 s"
    assert eta(0.0, 30.0) == "30 s so far"
    now = RolloutProgress(8, 2, 12, 340, 0.25, 10.0)
    assert str(now) == "sampling 2/8 attempts, 12 turns, 340 tokens, ETA 30 s"


# ---- rollouts ----


async def reads_ten_sections(task: Any, session: Session, cfg: Any) -> str:
    for _ in session.sections("mira holds 472. " * 50, 20, "token", 0):
        await session.generate("go on")
    return "ok"


def test_a_rollout_tells_how_much_of_its_documents_is_read(renderer: Renderer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout_progress, "EVERY_S", 0.02)
    seen: list[RolloutProgress] = []
    made = collector(Standin(renderer, delay=0.01), renderer, agent=reads_ten_sections)
    made.on_progress = seen.append
    collect(made, tasks=2, n=2)
    unfinished = [now for now in seen if now.done == 0]
    assert len(unfinished) >= 3
    assert all(now.attempts == 4 and now.turns >= now.tokens / 100 for now in seen)
    shares = [now.share for now in seen]
    assert shares == sorted(shares)
    assert shares[-1] > 0.5  # before any attempt was done


def test_nobody_is_told_after_the_rollout(renderer: Renderer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout_progress, "EVERY_S", 0.001)
    seen: list[RolloutProgress] = []
    made = collector(Standin(renderer, delay=0.01), renderer)
    made.on_progress = seen.append

    async def rollout_then_wait() -> int:
        await made.collect([Task("a", "q")], 2, Sampling(), "k")
        count = len(seen)
        await asyncio.sleep(0.02)
        return count

    assert asyncio.run(rollout_then_wait()) == len(seen) > 0


# ---- whole runs ----


def test_a_run_tells_of_sampling_and_of_every_pass(
    tmp_path: Path, small_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(consoles, "BETWEEN_LINES", 0.0)
    monkeypatch.setattr(rollout_progress, "EVERY_S", 0.001)
    more = [
        *("trainer.total_training_steps=1", "actor_rollout_ref.actor.ppo_epochs=2", "algorithm.adv_estimator=gae"),
        *("actor_rollout_ref.actor.use_kl_loss=true", "sft.data=expert", "sft.steps=1", "sft.batch_size=4"),
    ]
    args = command(tmp_path / "run", small_model, *more)
    TrainRun(compose(args[1], args[2:]), Console()).fit()
    lines = capsys.readouterr().out.splitlines()
    for title, said in (
        ("RL step 1/1: ", "sampling "),
        ("RL step 1/1: ", "log-probabilities "),
        ("RL step 1/1: ", "critic update "),
        ("RL step 1/1: ", "policy update 100%"),
        ("SFT step 1/1: ", "update 100%"),
        ("held-out tasks before training", "sampling "),
        ("reading held-out documents", "sampling "),
    ):
        assert any(line.startswith(title) and said in line for line in lines), (title, said)
