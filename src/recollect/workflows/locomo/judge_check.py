"""How good a judge is: its verdicts on answers whose rightness is known, because they were made that way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from recollect.config import Config
from recollect.data.locomo import ADVERSARIAL
from recollect.data.questions import questions_of
from recollect.data.task_rows import load_tasks
from recollect.eval.accuracy import of_scores
from recollect.rewards.judge import NoVerdict, check_judge, judge
from recollect.runtime.console import Console
from recollect.samplers.bindings import RoleBinder
from recollect.types import BadInput, Task

KINDS = ("right", "vague", "wrong")
VAGUE = {2: "Some time ago, a while before they talked about it"}  # by category
VAGUEST = "Something that matters to them, which they talked about"
AT_ONCE = 16

ConstructedAnswer = tuple[str, Task, str]  # its kind, the question, the answer


def constructed(tasks: Sequence[Task]) -> Iterator[ConstructedAnswer]:
    """For each question of categories 1 to 4: its gold, a vague answer, and another question's gold."""
    asked = [q.task(task) for task in tasks for q in questions_of(task) if q.fields.get("category") != ADVERSARIAL]
    for i, question in enumerate(asked):
        category = question.fields["category"]
        others = [*asked[i + 1 :], *asked[:i]]
        wrong = [o.answers[0] for o in others if o.fields["category"] == category and o.answers != question.answers]
        yield "right", question, question.answers[0]
        yield "vague", question, VAGUE.get(category, VAGUEST)
        if wrong:
            yield "wrong", question, wrong[0]


def measure_judge(cfg: Config, test: Path, console: Console) -> dict[str, Any]:
    """The share of right verdicts on each kind of answer, with intervals; no verdict counts as a wrong one."""
    if not cfg.judge.url:
        raise BadInput("which judge? Set judge.url to the address of an OpenAI-compatible endpoint, or to frozen:MODEL")
    check_judge(cfg)
    made = list(constructed(load_tasks(cfg, [str(test)])))
    seated = RoleBinder(cfg, None, say=console.say).seat_judge()
    try:
        with console.progress("verdicts", len(made)) as advance:
            given = asyncio.run(_verdicts(made, cfg, lambda: advance("", 1)))
    finally:
        seated.close()
    found: dict[str, Any] = {"wording": cfg.judge.wording, "no verdict": sum(verdict is None for verdict in given)}
    for kind in KINDS:
        wanted = float(kind == "right")
        hits = [float(verdict == wanted) for (name, _, _), verdict in zip(made, given, strict=True) if name == kind]
        found[kind] = of_scores(hits).row()
        row = found[kind]
        interval = f"{row['low']:.3f}–{row['high']:.3f}, n = {row['n']}"
        called = "right" if wanted else "wrong"
        console.say(f"{kind} answers that it calls {called}: {row['accuracy']:.3f} ({interval})")
    if found["no verdict"]:
        console.say(f"{found['no verdict']} replies held no verdict and count as wrong ones")
    return found


async def _verdicts(made: Sequence[ConstructedAnswer], cfg: Config, done: Any) -> list[float | None]:
    gate = asyncio.Semaphore(AT_ONCE)

    async def ask(question: Task, answer: str) -> float | None:
        async with gate:
            try:
                return (await judge(answer, question, cfg)).total
            except NoVerdict:
                return None
            finally:
                done()

    return list(await asyncio.gather(*(ask(question, answer) for _, question, answer in made)))
