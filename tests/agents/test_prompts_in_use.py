"""`agent.prompts` in a rollout, a run and a server: the file's prompts are what the model reads."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from recollect.agents.rollout import Collector
from recollect.agents.session import Binding
from recollect.chat import Renderer
from recollect.config.compose import compose, to_yaml
from recollect.models.load import load_tokenizer
from recollect.policies.scripted import Scripted
from recollect.runs.directory import RunDirectory
from recollect.samplers.checkpoint_roles import config_of
from recollect.serve.opening import opened, opening_of
from recollect.sources.task_stream import held_out
from recollect.types import BadInput, Sampling
from recollect.workflows.eval.eval_run import agent_config

WORDS = {"read": {"instruction": "keep it"}, "answer": {"instruction": "say it"}}


def written(folder: Path, prompts: object) -> str:
    (folder / "prompts.json").write_text(json.dumps({"prompts": prompts}))
    return f"agent.prompts={folder / 'prompts.json'}"


def prompts_of_a_rollout(settings: list[str]) -> list[str]:
    cfg = compose("needle", settings)
    renderer = Renderer(load_tokenizer("tiny", None))
    seen: list[str] = []
    policy = Scripted(renderer, lambda prompt: seen.append(prompt) or "mira")  # type: ignore[func-returns-value]
    collector = Collector(cfg, {"*": Binding(policy, renderer)})
    (group,) = asyncio.run(collector.collect(held_out(cfg, 1, 1), 1, Sampling(max_tokens=8), "test"))
    assert group.trajectories[0].failure is None
    return seen


def test_a_rollout_reads_the_prompts_of_the_file(tmp_path: Path) -> None:
    plain = prompts_of_a_rollout([])
    worded = prompts_of_a_rollout([written(tmp_path, WORDS)])
    assert len(plain) == len(worded)
    for before, after in zip(plain, worded, strict=True):
        added = "say it" if "Section:" not in before else "keep it"
        assert added in after
        assert added not in before
        assert before.split("Question:")[1].split() == after.split("Question:")[1].split()


def test_a_baseline_does_not_get_the_prompts_of_another_agent(tmp_path: Path) -> None:
    cfg = compose("needle", [written(tmp_path, WORDS)])
    assert agent_config(cfg, "chat").agent.prompts is None
    assert agent_config(cfg, "recurrent").agent.prompts


def test_a_run_keeps_its_prompts(tmp_path: Path) -> None:
    settings = [written(tmp_path, WORDS), f"trainer.default_local_dir={tmp_path / 'run'}"]
    RunDirectory.start(compose("needle", settings)).release()
    assert (tmp_path / "run" / "prompts.json").read_text() == (tmp_path / "prompts.json").read_text()
    RunDirectory.start(compose("needle", settings)).release()  # the same prompts go on
    written(tmp_path, {"read": {"instruction": "other"}})
    with pytest.raises(BadInput, match="has changed since"):
        RunDirectory.start(compose("needle", settings))
    (tmp_path / "prompts.json").unlink()
    cfg = config_of(tmp_path / "run", [])  # `eval`, `ask` and `serve` take the copy
    assert cfg.agent.prompts == str(tmp_path / "run" / "prompts.json")
    assert to_yaml(cfg)


def test_a_server_opens_conversations_with_the_system_prompt(tmp_path: Path) -> None:
    chat = ["agent.agent_type=chat", "recurrent.enable=null"]
    given = written(
        tmp_path, {"system": {"instruction": "Be brief.", "demonstrations": [{"question": "a", "reply": "b"}]}}
    )
    opening = opening_of(compose("needle", [*chat, given]), True)
    rows = opened({"messages": [{"role": "user", "content": "c"}]}, opening)["messages"]
    assert [(r["role"], r["content"]) for r in rows] == [
        ("system", "Be brief."),
        ("user", "a"),
        ("assistant", "b"),
        ("user", "c"),
    ]
    own = {"messages": [{"role": "system", "content": "x"}, {"role": "user", "content": "c"}]}
    assert opened(own, opening) == own
    assert opened({"prompt": "x"}, opening) == {"prompt": "x"}
    assert opening_of(compose("needle", []), True) == []
    reader = compose("needle", [written(tmp_path, WORDS)])
    assert opening_of(reader, False) == []
    with pytest.raises(BadInput, match="a server takes a system prompt"):
        opening_of(reader, True)
