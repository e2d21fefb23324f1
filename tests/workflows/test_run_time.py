"""The time of SFT and of evaluations in `--dry-run`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recollect.chat import Renderer
from recollect.config import Config
from recollect.config.compose import compose
from recollect.models.load import load_renderer
from recollect.sources.task_stream import held_out
from recollect.training.setup import build_learner
from recollect.training.sft.sources import batches_of
from recollect.workflows.dry_run.pace import Pace
from recollect.workflows.dry_run.run_time import evaluation_time, evaluations, imitated_tokens, sft_time

PACE = Pace(prefill=0.001, decode=0.1, rows=8, forward=0.001, train=0.003, optimizer=0.5)


def settings(model: Path, folder: Path, *more: str) -> list[str]:
    lines = [{"question": f"{n} + {n}?", "solution": f"<<{n}+{n}={2 * n}>>", "answer": str(2 * n)} for n in range(12)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return [
        *(
            f"actor_rollout_ref.model.path={model}",
            "trainer.device=cpu",
            "agent.agent_type=chat",
            "recurrent.enable=null",
        ),
        *(f"data.train_files={folder / 'rows.jsonl'}", f"data.val_files={folder / 'rows.jsonl'}"),
        *("sft.data=oracle", "sft.steps=7", "sft.batch_size=4", "data.max_response_length=16"),
        *("agent.reward_name=math_reward_string_equal", "trainer.total_training_steps=4", *more),
    ]


def made(model: Path, folder: Path, *more: str) -> tuple[Config, Renderer]:
    cfg = compose(None, settings(model, folder, *more))
    return cfg, load_renderer(str(model), cfg.agent.template)


def test_an_update_computes_what_was_counted(small_model: Path, tmp_path: Path) -> None:
    cfg, renderer = made(small_model, tmp_path)
    learner, _ = build_learner(cfg, cfg.sft.optim, cfg.sft.steps)
    computed = learner.imitate(batches_of(cfg, renderer)[0])["tokens_computed"]
    learner.close()
    assert imitated_tokens(cfg, renderer) == computed
    assert sft_time(cfg, renderer, PACE) == pytest.approx(7 * (computed * 0.003 + 0.5))


def test_without_supervised_updates_there_is_no_time(small_model: Path, tmp_path: Path) -> None:
    cfg, renderer = made(small_model, tmp_path, "sft.steps=0")
    assert sft_time(cfg, renderer, PACE) == 0


def test_stored_conversations_are_counted_too(small_model: Path, tmp_path: Path) -> None:
    chats = tmp_path / "chats.jsonl"
    chat = {"messages": [{"role": "user", "content": "kolu holds?"}, {"role": "assistant", "content": "118"}]}
    chats.write_text(8 * (json.dumps(chat) + "\n"))
    cfg, renderer = made(small_model, tmp_path, f"sft.data={chats}")
    learner, _ = build_learner(cfg, cfg.sft.optim, cfg.sft.steps)
    computed = learner.imitate(batches_of(cfg, renderer)[0])["tokens_computed"]
    learner.close()
    assert imitated_tokens(cfg, renderer) == computed


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ((), 3),
        (("trainer.val_before_train=false",), 2),
        (("sft.steps=0",), 2),
        (("trainer.test_freq=1",), 6),  # before, after SFT, after steps 1 to 3, at the end
        (("trainer.test_freq=-1",), 1),
    ],
)
def test_evaluations_are_counted(words: tuple[str, ...], count: int, small_model: Path, tmp_path: Path) -> None:
    assert evaluations(made(small_model, tmp_path, *words)[0], 4) == count


def test_an_evaluation_takes_its_prompts_and_completions(small_model: Path, tmp_path: Path) -> None:
    cfg, renderer = made(small_model, tmp_path)
    tasks = held_out(cfg)
    once = evaluation_time(cfg, 4, tasks, renderer, PACE)
    assert once is not None
    sampled = 3 * len(tasks) * 16 / 8 * 0.1
    assert once > sampled
    assert evaluation_time(cfg, 4, [*tasks, *tasks], renderer, PACE) == pytest.approx(
        2 * once, rel=0.01
    )  # the first tasks stand for all
    assert evaluation_time(cfg, 4, [], renderer, PACE) == 0
