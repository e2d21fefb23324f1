"""A whole training step in which everything that a tool can do wrong goes wrong at once."""

from __future__ import annotations

import json
import socket
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect.config import Config
from recollect.runs.directory import RunDirectory
from recollect.runtime.console import Console
from recollect.training.train_run import TrainRun

MINE = """
    import time

    from recollect.agents.session import Conversation
    from recollect.tools import ToolCall, tool
    from recollect.types import Message


    @tool(timeout=0.5)
    def hang() -> str:
        '''Never answers.'''
        time.sleep(3600)


    def crash() -> str:
        '''Always fails.'''
        raise ZeroDivisionError("as always")


    @tool(max_length=500)
    def flood() -> str:
        '''Says too much.'''
        return "x" * 10_000_000


    CALLS = [*(ToolCall(name, {}) for name in ("hang", "crash", "flood")), ToolCall("google_search", {"query": "mira"})]


    async def agent(task, session, cfg):
        '''Whatever the model says, its turn is followed by all the calls.'''
        talk = Conversation([Message("user", task.question)], session.tools.schemas)
        for _ in range(2):
            said = await session.generate(talk, max_tokens=16)
            results = await session.tools.call_all(CALLS)
            session.note("\\n".join(r.text for r in results))
            talk.add(*(Message("tool", r.text) for r in results))
        return said.text


    def reward(answer, trajectory):
        return len(answer) % 2 + 0.1 * trajectory.sample
"""


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port of this machine that nobody listens on, nor can while it is held."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        yield int(one.getsockname()[1])


def test_a_hostile_step_ends_in_time_and_says_what_happened(
    tmp_path: Path, small_model: Path, closed_port: int
) -> None:
    mine = tmp_path / "hostile.py"
    mine.write_text(textwrap.dedent(MINE))
    cfg = Config()
    cfg.agent.agent_type = f"{mine}:agent"
    cfg.agent.tools = [f"{mine}:hang", f"{mine}:crash", f"{mine}:flood", "google_search"]
    cfg.agent.reward_name, cfg.agent.timeout_s = f"{mine}:reward", 120.0
    cfg.search.endpoint = f"http://127.0.0.1:{closed_port}/search"
    cfg.actor_rollout_ref.model.path, cfg.actor_rollout_ref.rollout.n = str(small_model), 4
    cfg.actor_rollout_ref.actor.optim.lr = 1e-3
    cfg.data.train_batch_size, cfg.data.val_max_samples, cfg.data.made_up = 4, 1, "arithmetic"
    cfg.trainer.total_training_steps, cfg.trainer.threads, cfg.trainer.device = 1, 1, "cpu"
    cfg.trainer.val_before_train, cfg.trainer.default_local_dir = False, str(tmp_path / "run")
    start = time.monotonic()
    TrainRun(cfg, Console(quiet=True)).fit()
    assert time.monotonic() - start < 2 * cfg.agent.timeout_s
    run = RunDirectory(tmp_path / "run")
    (row,) = [r for r in run.metrics() if "reward/mean" in r]
    names = {k: v for k, v in row.items() if k.startswith("tools/")}
    assert names == {  # per trajectory
        "tools/calls": 8,
        "tools/ok": 2,
        "tools/cut": 2,
        "tools/timeout": 2,
        "tools/exception": 4,
        **{f"tools/{name}": 2 for name in ("hang", "crash", "flood", "google_search")},
        "tools/hang/timeout": 2,
        "tools/crash/exception": 2,
        "tools/google_search/exception": 2,
    }
    assert row["rollout/failures"] == 0
    assert row["actor/grad_norm"] > 0
    assert json.loads((run.path / "fidelity.json").read_text())["fidelity"] == 1
    notes = "\n".join(note for t in run.trajectories() for note in t["notes"])
    for said in (
        "hang did not answer within 0.5 seconds",
        "ZeroDivisionError: as always",
        "characters cut",
        "Connection",
    ):
        assert said in notes
