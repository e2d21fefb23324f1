"""The made-up books: what is asked can be known, the expert knows it, and the sloppy clerk does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from recollect.agents.rollout import Collector
from recollect.agents.session import Binding
from recollect.chat import Renderer
from recollect.config.compose import compose
from recollect.data.questions import questions_of
from recollect.domains.families import made_up
from recollect.policies.scripted import Scripted
from recollect.sources.task_stream import held_out
from recollect.tasks import ledger
from recollect.types import Sampling


def success(renderer: Renderer, respond: Callable[[str], str], multiple: int = 1) -> float:
    cfg = compose("ledger", [])
    collector = Collector(cfg, {"*": Binding(Scripted(renderer, respond), renderer)})
    groups = asyncio.run(collector.collect(held_out(cfg, multiple, 24), 1, Sampling(max_tokens=40), "k"))
    done = [t for g in groups for t in g.trajectories]
    assert not [t.failure for t in done if t.failure]
    return sum(t.reward for t in done) / len(done)


@pytest.mark.parametrize("multiple", [1, 4])
def test_the_expert_is_always_right(renderer: Renderer, multiple: int) -> None:
    assert success(renderer, ledger.expert, multiple) == 1.0


def test_the_sloppy_clerk_knows_the_form_and_little_else(renderer: Renderer) -> None:
    assert 0.05 < success(renderer, ledger.sloppy) < 0.45
    prompt = "Section: day 1: mira holds 472. kolu holds 118.\nNotes: kolu\nMemory: none"
    assert ledger.sloppy(prompt) == ledger.sloppy(prompt)


def worked_out(kind: str, held: dict[str, str], names: list[str]) -> str:
    if kind == "many":
        return str(len(held))
    if kind == "together":
        return str(sum(int(held[n]) for n in names))
    return max(names, key=held.__getitem__) if kind == "more" else held[names[0]]


def test_every_kind_of_question_is_asked_and_can_be_worked_out() -> None:
    cfg = compose("ledger", ["data.ledger.hard=0.7"])
    kinds = set()
    for i in range(40):
        task = made_up(cfg).train(cfg, 0, i)
        for q in questions_of(task):
            held: dict[str, str] = {}
            for session in task.context[: q.position]:
                held.update(ledger._FACT.findall(session["text"]))
            names = [w.strip("?,") for w in q.text.split() if w.strip("?,") in held]
            (gold,) = q.answers
            kind = next((k for k in ("many", "together", "more") if k in q.text), "latest")
            assert gold == worked_out(kind, held, names)
            kinds.add(kind)
    assert kinds == {"many", "together", "more", "latest"}


def test_a_task_depends_on_its_index_alone() -> None:
    cfg = compose("ledger", [])
    assert made_up(cfg).train(cfg, 0, 5) == made_up(cfg).train(cfg, 9, 5)
    assert made_up(cfg).train(cfg, 0, 5) != made_up(cfg).train(cfg, 0, 6)
