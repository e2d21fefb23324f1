"""`--dry-run`: it looks at everything, starts nothing, and what it predicts is what a run then does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recollect.chat import Renderer
from recollect.config import Config
from recollect.config.compose import compose, recipe_names
from recollect.models.load import load_model
from recollect.runtime.console import Console
from recollect.types import BadInput, Task
from recollect.workflows.dry_run.dry_run import dry_run, size
from recollect.workflows.dry_run.predict import memory, shape, tokens


def look(cfg: Config) -> dict[str, Any]:
    return dry_run(cfg, Console(quiet=True))


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    data = [
        {"question": f"What does n{i} hold?", "context": f"n{i} holds {i}. " * 9, "answer": str(i)} for i in range(40)
    ]
    (tmp_path / "rows.json").write_text(json.dumps(data))
    return tmp_path


REAL_DATA = {"gsm8k_tools", "locomo", "squad_memory", "squad_search", "squad_stages"}  # see test_real_recipes.py


@pytest.mark.parametrize("name", [name for name in recipe_names() if name not in REAL_DATA])
def test_every_recipe(name: str, rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A recipe that asks for a model and data gets them; nothing else is changed."""
    asked = ["actor_rollout_ref.model.path=tiny", "data.train_files=rows.json", "data.val_files=rows.json"]
    steps = [
        "trainer.total_training_steps=1"
    ]  # one says how many on the command line, the stages of one for themselves
    given = {"hotpotqa_memory": asked, "needle_base": steps, "two_stage": steps}
    before = sorted(rows.rglob("*"))
    found = look(compose(name, given.get(name, [])))
    assert found["steps"] > 0
    assert found["memory_total"] > 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(found))
    assert sorted(rows.rglob("*")) == before


def test_it_does_not_change_the_configuration(rows: Path) -> None:
    cfg = compose(None, ["data.train_files=rows.json"])
    look(cfg)
    assert cfg == compose(None, ["data.train_files=rows.json"])


def test_the_tokens_of_a_step_are_those_of_a_run(tokenizer: Any) -> None:
    """Made-up documents of 4 sections: 5 turns; the prompts are what the agent would ask."""
    from recollect.agents.memory.recurrent_prompts import answer_prompt, update_prompt
    from recollect.sources.task_stream import TaskStream
    from recollect.types import Message

    cfg, renderer = compose("needle", []), Renderer(tokenizer)
    tasks = TaskStream(cfg).take(0)[:4]
    made = tokens(cfg, tasks, renderer)
    assert made.turns == 5
    assert made.response == 5 * 12
    limits = cfg.recurrent.memory.config
    full = " holds" * limits.max_memorization_length  # a memory as long as it may be
    expected = 0
    for task in tasks:
        parts = _sections(task, renderer, cfg)
        memories = ["", *[full] * (len(parts) - 1)]
        texts = [
            update_prompt("plain", "chunk_first", task.question, p, m) for p, m in zip(parts, memories, strict=True)
        ]
        texts.append(answer_prompt("plain", task.question, full))
        expected += sum(len(renderer.prompt([Message("user", t)])) for t in texts)
    assert made.prompt == pytest.approx(expected / len(tasks), rel=0.03)
    assert made.per_step(cfg)["trajectories"] == 256


def _sections(task: Task, renderer: Renderer, cfg: Config) -> list[str]:
    from recollect.agents.session import token_offsets
    from recollect.data.documents import sections

    limits = cfg.recurrent.memory.config
    return list(sections(task.context, lambda t: token_offsets(renderer.tokenizer, t), limits.chunk_size, limits.split))


def test_the_shape_is_that_of_the_model() -> None:
    import torch

    model = load_model("tiny", torch.float32)
    found = shape("tiny", 4, ["q_proj", "v_proj"])
    assert found.parameters == sum(p.numel() for p in model.parameters())
    layers = model.base_model.layers
    linear = [m for layer in layers for m in (layer.self_attn.q_proj, layer.self_attn.v_proj)]
    assert found.adapter == sum(4 * (m.in_features + m.out_features) for m in linear)
    assert shape("tiny").adapter == 0
    assert shape("tiny", 4, ["all-linear"]).adapter > found.adapter


def test_memory_by_part(tokenizer: Any) -> None:
    made = tokens(Config(), [Task("t", "q", "c" * 400, ("a",))], Renderer(tokenizer))
    parts = lambda *given: {n.part: n for n in memory(compose("needle", list(given)), made)}
    plain, count = parts(), shape("tiny").parameters
    assert set(plain) == {"actor", "rollout"}
    assert (plain["actor"].weights, plain["actor"].moments) == (4 * count, 8 * count)
    assert parts("actor_rollout_ref.rollout.dtype=float32")["rollout"].weights == 0
    assert parts("actor_rollout_ref.rollout.dtype=bfloat16")["rollout"].weights == 2 * count
    for kind, each in (("float32", 4), ("bfloat16", 2)):
        kinds = [f"actor_rollout_ref.{part}.dtype={kind}" for part in ("actor", "rollout")]
        assert parts("actor_rollout_ref.actor.use_kl_loss=True", *kinds)["reference"].weights == each * count
        lora = parts("algorithm.use_kl_in_reward=True", "actor_rollout_ref.model.lora_rank=2", *kinds)
        assert lora["reference"].weights == 0
        adapter = lora["actor"].gradients
        assert lora["actor"].weights == each * count + adapter
    assert lora["actor"].moments < plain["actor"].moments / 10
    assert parts("algorithm.adv_estimator=gae")["critic"].total >= 16 * count
    assert parts("algorithm.adv_estimator=gae", "critic.model.share_actor=True")["critic"].total == 0


REFUSED = {
    "data.train_files=nowhere.json": "no data file at nowhere.json",
    "data.prompt_key=qestion": "rows.json, row 1: no text under data.prompt_key=qestion; it has question, context",
    "actor_rollout_ref.model.path=./none": "no model folder",
    "actor_rollout_ref.model.path=bare": "holds no weights",
    "algorithm.adv_estimator=gae critic.model.path=./none": "no model folder at ./none",
    "agent.reward_name=boxed": "agent.reward_name=boxed is unknown",
    "agent.agent_type=talk": "agent.agent_type=talk is unknown",
    "agent.agent_type=hf agent.tools=[none.py:f]": "no file none.py",
    "data.train_batch_size=64": "fewer than data.train_batch_size=64",
    "recurrent.memory.config.chunk_size=90000": "the model's window of 16384",
    "agent.agent_type=chat data.max_response_length=90000": "the model's window of 16384",
    "agent.agent_type=chat data.max_prompt_length=5": "rows.json, row 1: the prompt has",
    "trainer.default_local_dir=rows.json": "is a file",
    "trainer.default_local_dir=rows.json/below": "cannot be written",
    "trainer.resume_mode=resume_path trainer.resume_from_path=gone": "there is no checkpoint",
    "sft.data=nosuch sft.steps=3": "sft.data=nosuch: known are expert",
    "sft.data=expert sft.steps=3": "sft.data=expert plays made-up documents only",
    "agent.reward_name=length_penalty(limit=abc)": "limit is a whole number",
    "agent.reward_name=trajectory(domain=math,weights=my.yaml)": "my.yaml",
    "agent.reward_name=own.py:anything": "takes everything as **kwargs, so it is open whose `answer` it means",
    "agent.reward_name=own.py:thrice": "it would be compared with itself; leave one of the three out",
    "agent.reward_name=own.py:more": "agent.reward_name: the reward wants depth; there are question, context",
    "agent.agent_type=own.py:plain": "agent.agent_type=own.py:plain is not async: write it as `async def plain(",
}
OWN = """
def anything(**kwargs): return 1.0
def thrice(answer, final_response, golden_answers): return 1.0
def more(answer, depth): return 1.0
def plain(task, session, cfg): return "x"
"""


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_missing_is_named(text: str, rows: Path) -> None:
    from recollect.models.tiny import TINY

    (rows / "own.py").write_text(OWN)
    (rows / "bare").mkdir()
    (rows / "bare" / "config.json").write_bytes((TINY / "config.json").read_bytes())
    with pytest.raises(BadInput) as caught:
        look(compose(None, ["data.train_files=rows.json", *text.split()]))
    assert REFUSED[text] in str(caught.value)


def test_sizes_for_people() -> None:
    assert [size(n) for n in (0, 12, 2048, 3 << 20, 5 << 30)] == ["–", "12 B", "2.0 KiB", "3.0 MiB", "5.0 GiB"]
