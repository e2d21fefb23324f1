"""The agents as DSPy programs, and the three optimizers over the embedded model. `make test-optimize` installs DSPy."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from recollect.agents.rollout import Collector
from recollect.config.compose import compose
from recollect.eval.evaluate import evaluate
from recollect.models.checkpoints import find_checkpoint
from recollect.policies.endpoint import EndpointGone
from recollect.runtime.console import Console
from recollect.runtime.threads import LoopThread
from recollect.samplers.checkpoint_roles import NamedModels
from recollect.sources.task_stream import held_out
from recollect.types import BadInput
from recollect.workflows.optimize.optimize_request import OptimizeRequest, acting_models
from recollect.workflows.optimize.optimize_run import optimize
from tests.policies.outside import Outside, running

dspy = pytest.importorskip("dspy")
SMALL = ["evaluation.lengths=[1]", "evaluation.tasks=[8]"]
TURN = {"question": "What does mira hold?", "section": "mira holds 472.", "memory": "none", "reply": "mira holds 472"}


def who_plays(*settings: str) -> NamedModels:
    return NamedModels(find_checkpoint("tiny")[0], None, {}, compose("needle", [*SMALL, *settings]))


@pytest.fixture
def thread() -> Any:
    made = LoopThread("test")
    yield made
    made.close()


def test_a_program_does_what_the_agent_does(tmp_path: Path, thread: LoopThread) -> None:
    """With the prompts of a file, the program samples the very ids that the agent samples."""
    from recollect.dspy.agent_program import AgentProgram, AgentRunner
    from recollect.dspy.policy_lm import PolicyLM

    file = tmp_path / "prompts.json"
    entries = {"read": {"instruction": "Keep {it}.", "demonstrations": [TURN]}}
    file.write_text(json.dumps({"prompts": entries}))
    who = who_plays(f"agent.prompts={file}")
    tasks, policies = held_out(who.cfg, 1, 4), who.policies("")
    collector = Collector(who.cfg, policies.bindings)
    expected = [g.trajectories[0] for g in evaluate(collector, tasks, "val")]
    asyncio.run(collector.close())
    runner = AgentRunner(who.cfg, policies.bindings, tasks, thread)
    program = AgentProgram(runner)
    program.set_lm(PolicyLM(policies.bindings["*"], thread, "tiny", temperature=0.0))
    assert program.entries() == entries
    for task, wanted in zip(tasks, expected, strict=True):
        (made,) = runner.attempt(program, task).trajectories
        assert [list(t.prompt_ids) for t in made.turns] == [list(t.prompt_ids) for t in wanted.turns]
        assert [t.completion.ids for t in made.turns] == [t.completion.ids for t in wanted.turns]
        assert made.reward == wanted.reward
    policies.close()


@pytest.mark.parametrize("name", ["miprov2", "simba", "gepa"])
def test_an_optimizer_runs_to_its_end_and_goes_on_from_its_cache(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = OptimizeRequest(name, 400, tmp_path / "out", num_train=4, num_val=4)
    first = optimize(who_plays(), asked, Console(True))
    assert capsys.readouterr().out == ""  # DSPy prints bars and lines, and --quiet prints JSON alone
    assert 0 < first["requests"] <= 400
    assert first["paired"][0]["n"] == 8
    held = json.loads((tmp_path / "out" / "prompts.json").read_text())["prompts"]
    assert set(held) <= {"read", "answer"}
    again = optimize(who_plays(), asked, Console(True))
    assert (again["requests"], again["prompts_hash"]) == (first["requests"], first["prompts_hash"])
    assert again["held_out"] == first["held_out"]
    with pytest.raises(BadInput, match="holds another optimisation"):
        optimize(who_plays("agent.timeout_s=99"), asked, Console(True))


def test_a_budget_that_is_too_small_leaves_the_best_that_was_seen(tmp_path: Path) -> None:
    found = optimize(who_plays(), OptimizeRequest("simba", 30, tmp_path / "out", num_train=4, num_val=4), Console(True))
    assert found["requests"] == 30
    assert found["budget_spent"]
    assert json.loads((tmp_path / "out" / "prompts.json").read_text()) == {"prompts": {}}


def somebody(body: dict[str, Any]) -> str:
    """A model behind an address: it notes what it reads, and forgets every third thing; asked for more, it says so."""
    text = body["messages"][-1]["content"]
    held = re.findall(r"\w+ holds \d+", text)
    asked = re.search(r"What does (\w+) hold", text)
    known = [line for line in held if sum(line.encode()) % 3]
    if "Section:" in text or asked is None:
        return ". ".join(known) if held else "Keep every name and number."
    return next((f"\\boxed{{ {line.split()[-1]}}}" for line in known if line.startswith(asked[1])), "unknown")


@pytest.mark.parametrize("name", ["miprov2", "simba", "gepa"])
def test_a_server_that_goes_away_costs_nothing(name: str, tmp_path: Path) -> None:
    """The search stops, nothing of it counts, and the same command ends as if the server had always been there."""

    def found(outside: Outside, folder: str) -> dict[str, Any]:
        away = ("actor_rollout_ref.rollout.fixed_model_wait_s=0.1", "actor_rollout_ref.rollout.fixed_model_retries=0")
        settings = compose("needle", [*SMALL, *away, "evaluation.tasks=[4]", "actor_rollout_ref.model.path=tiny"])
        asked = OptimizeRequest(name, 150, tmp_path / folder, num_train=3, num_val=3, threads=1)
        return optimize(acting_models(outside.url, [], settings), asked, Console(True))

    with running(Outside(somebody)) as always:
        port = int(always.url.split(":")[2].removesuffix("/v1"))
        whole = found(always, "whole")
    with running(Outside(somebody), port) as outside:
        outside.limit = 20 + whole["requests"] // 2
        with pytest.raises(EndpointGone, match="the same command goes on"):
            found(outside, "cut")
    assert not (tmp_path / "cut" / "prompts.json").exists()
    with running(Outside(somebody), port) as outside:
        rest = found(outside, "cut")
        asked_again = len(outside.bodies)
    same = ("requests", "prompts_hash", "validation", "held_out", "failed_attempts")
    assert {key: rest[key] for key in same} == {key: whole[key] for key in same}
    assert asked_again < whole["requests"]
    assert whole["failed_attempts"] == {}
