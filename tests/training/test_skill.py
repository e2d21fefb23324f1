"""Batches of the skill's teacher: which updates are exercises, what of them is trained, what the options change."""

from __future__ import annotations

from typing import Any

import pytest

from recollect.chat import Renderer
from recollect.config.compose import compose
from recollect.models.tiny import build_tokenizer
from recollect.tasks.names import split_of
from recollect.training.learner.imitation_loss import token_losses
from recollect.training.setup import build
from recollect.training.sft.skill import SkillBatches


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return build_tokenizer()


def batches(tokenizer: Any, *more: str) -> SkillBatches:
    return SkillBatches(compose("needle", ["model=scratch", "sft.batch_size=10", *more]), Renderer(tokenizer))


def texts(tokenizer: Any, made: Any) -> str:
    return str(tokenizer.decode(made.tokens))


def test_exercises_come_first_and_only_digits_of_them_are_trained(tokenizer: Any) -> None:
    made = batches(tokenizer, "data.needle.drill=3")
    for index in range(3):
        assert "Question" not in texts(tokenizer, made[index])
        trained = tokenizer.convert_ids_to_tokens(made[index].targets)
        assert {t.lstrip("Ġ") for t in trained} <= set("0123456789")
        assert len(made[index].entry) == 100
    assert "Question" in texts(tokenizer, made[3])
    assert "Question" in texts(tokenizer, batches(tokenizer, "data.needle.drill=0")[0])


def test_a_batch_depends_on_seed_and_index_alone(tokenizer: Any) -> None:
    made, again = batches(tokenizer), batches(tokenizer)
    again[7]
    assert texts(tokenizer, made[2]) == texts(tokenizer, again[2]) != texts(tokenizer, made[3])
    assert texts(tokenizer, made[2]) != texts(tokenizer, batches(tokenizer, "trainer.seed=1")[2])


def test_shares_of_the_teachers_examples(tokenizer: Any) -> None:
    def count(word: str, *more: str) -> int:
        return texts(tokenizer, batches(tokenizer, "data.needle.drill=0", "sft.batch_size=40", *more)[0]).count(word)

    plain = "data.needle.recall=0"
    assert count("trusts", plain, "data.needle.chained=0") == 0 < count("trusts", plain, "data.needle.chained=1")
    assert count("Write what matters", plain) == 0
    assert count("Write what matters", "data.needle.recall=1") == 40
    first = [
        count("\nMemory: none\nSection", "data.needle.recall=1", f"data.needle.memory_first={s}") for s in (0, 0.2, 1)
    ]
    assert first == [0, 8, 40]


def test_what_the_teacher_shows_is_never_held_out(tokenizer: Any) -> None:
    made = batches(tokenizer, "data.needle.drill=2", "sft.batch_size=60")
    words = {w.strip(".?") for i in (0, 1, 2, 3) for w in texts(tokenizer, made[i]).replace("<", " ").split()}
    values = {w for w in words if w.isdigit() and len(w) == 3}
    assert values
    assert {split_of(v) for v in values} == {"train"}


@pytest.mark.slow
def test_a_random_model_learns_to_look_up(tokenizer: Any) -> None:
    cfg = compose("needle", ["model=scratch", "sft.batch_size=48", "trainer.seed=1"])
    made = SkillBatches(cfg, Renderer(tokenizer))
    learner = build(cfg, cfg.sft.optim, cfg.sft.steps).learner.trained
    right: list[float] = []
    for index in range(230):

        def loss(model: Any, part: Any) -> Any:
            losses, hits = token_losses(model, part)
            right.append(float(hits[part.entry_target].float().mean()))
            return losses[part.entry_target].mean()

        learner.accumulate([made[index]], loss)
        learner.step()
    assert sum(right[:20]) / 20 < 0.5
    assert sum(right[-20:]) / 20 > 0.9
