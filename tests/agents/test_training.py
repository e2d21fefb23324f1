"""A tool agent trained for a step: what it learns from are the very tokens it sampled, tool results aside."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

from recollect.chat import Renderer
from recollect.config import Config
from recollect.models.load import load_tokenizer
from recollect.runs.directory import RunDirectory
from recollect.runtime.console import Console
from recollect.training.train_run import TrainRun

MINE = """
    from recollect.types import ToolCall, ToolResult

    def echo(text: str) -> str:
        '''Says it again.'''
        return f"echo {text}"

    def bonus(text: str) -> ToolResult:
        '''Gives a reward.'''
        return ToolResult("thanks", reward=0.5)

    def parse(text, schemas):
        '''A random model calls no tool, so every turn of its is taken for three calls, one of them wrong.'''
        wrong = ToolCall("", None, error="try again")
        return [ToolCall("echo", {"text": text[:4]}), wrong, ToolCall("bonus", {"text": "x"})]

    def reward(answer, trajectory):
        return len(answer) % 2 + 0.1 * trajectory.sample
"""


@pytest.fixture(scope="module", params=["hf", "react"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, small_model: Path) -> RunDirectory:
    folder = tmp_path_factory.mktemp("tools")
    mine = folder / f"mine_{request.param}.py"
    mine.write_text(textwrap.dedent(MINE))
    cfg = Config()
    cfg.agent.agent_type, cfg.agent.max_turns, cfg.agent.max_tokens_per_turn = request.param, 3, 48
    cfg.agent.tools, cfg.agent.tool_parser = [f"{mine}:echo", f"{mine}:bonus"], f"{mine}:parse"
    cfg.agent.reward_name, cfg.agent.max_context_length = f"{mine}:reward", 4000
    cfg.actor_rollout_ref.model.path, cfg.actor_rollout_ref.rollout.n = str(small_model), 8
    cfg.actor_rollout_ref.actor.optim.lr = 1e-3
    cfg.data.train_batch_size, cfg.data.val_max_samples, cfg.data.needle.chunks = 3, 2, 1
    cfg.evaluation.lengths, cfg.evaluation.tasks = [1], [2]
    cfg.trainer.total_training_steps, cfg.trainer.threads, cfg.trainer.device = 1, 1, "cpu"
    cfg.trainer.default_local_dir = str(folder / "run")
    TrainRun(cfg, Console(quiet=True)).fit()
    return RunDirectory(folder / "run")


def test_every_trained_token_was_sampled(run: RunDirectory) -> None:
    fidelity = json.loads((run.path / "fidelity.json").read_text())
    assert fidelity["trained_tokens"] == fidelity["sampled_tokens"] > 0
    rows = list(run.trajectories())
    assert len(rows) == 24
    assert {r["failure"] for r in rows} == {None}
    (row,) = [r for r in run.metrics() if "actor/grad_norm" in r]
    assert row["actor/grad_norm"] > 0


def test_turns_extend_each_other_with_tool_results_between(run: RunDirectory, small_model: Path) -> None:
    renderer = Renderer(load_tokenizer(str(small_model)))
    several = [r for r in run.trajectories() if len(r["turns"]) > 1]
    assert several
    for row in several:
        assert row["stop"] in ("max_turns", "max_tokens")
        assert row["tool_reward"] == row["parts"]["tools"]
        for before, after in zip(row["turns"], row["turns"][1:], strict=False):
            ids = before["prompt_ids"] + before["ids"]
            assert after["prompt_ids"][: len(ids)] == ids
            added = renderer.decode(after["prompt_ids"][len(ids) :])
            assert added.index("echo") < added.index("try again") < added.index("thanks")
        used = row["tool_calls"]["malformed"]
        assert used in (len(row["turns"]), len(row["turns"]) - 1)  # the calls of a cut turn are not run
        assert (row["tool_calls"]["ok"], row["tool_reward"]) == (2 * used, 0.5 * used)
