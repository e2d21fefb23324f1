"""A user's code that wants to end the program fails by itself: in a reward, an agent and a tool, plain or async."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import run

CODE = """
import sys


class Stop(BaseException):
    pass


def leave():
    sys.exit(3)


def stop():
    raise Stop("now")


def reward_leave(answer):
    leave()


async def reward_leave_later(answer):
    leave()


def reward_stop(answer):
    stop()


async def reward_stop_later(answer):
    stop()


async def agent_leave(task, session, cfg):
    leave()


async def agent_stop(task, session, cfg):
    stop()


"""
SMALL = [
    "data.train_batch_size=2", "actor_rollout_ref.rollout.n=2", "trainer.total_training_steps=1", "sft.steps=0",
    "data.needle.chunks=1", "data.val_max_samples=2", "trainer.test_freq=-1", "trainer.val_before_train=false",
]  # fmt: skip


@pytest.mark.parametrize("name", ["reward_leave", "reward_leave_later", "reward_stop", "reward_stop_later"])
def test_a_reward_that_leaves_is_a_failure(tmp_path: Path, name: str) -> None:
    said = "SystemExit: 3" if "leave" in name else "Stop: now"
    (tmp_path / "own.py").write_text(CODE)
    done = run("train", "needle", *SMALL, f"agent.reward_name=own.py:{name}", cwd=tmp_path)
    assert done.returncode == 1
    assert f"4 of 4 trajectories failed in step 1; most often reward: RuntimeError: {said}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["agent_leave", "agent_stop"])
def test_an_agent_that_leaves_is_a_failure(tmp_path: Path, name: str) -> None:
    said = "SystemExit: 3" if "leave" in name else "Stop: now"
    (tmp_path / "own.py").write_text(CODE)
    words = [*SMALL, "recurrent.enable=null", f"agent.agent_type=own.py:{name}"]
    done = run("train", "needle", *words, cwd=tmp_path)
    assert done.returncode == 1
    assert f"most often agent: RuntimeError: {said}" in done.stderr
    assert "Traceback" not in done.stderr
