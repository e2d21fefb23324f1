"""Results by category of question, where questions have one: LoCoMo's official F1 and what stands beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recollect.data.locomo import ADVERSARIAL, CATEGORIES
from recollect.data.questions import Question, questions_of
from recollect.eval.accuracy import of_scores
from recollect.rewards.locomo_f1 import evidence_recall, locomo_f1, refuses, set_f1
from recollect.rewards.marked import given_answer
from recollect.rewards.memory_qa import part_of
from recollect.types import Task, Trajectory

EARNED = ("earned", "agrees_with_f1")  # shown where another reward than the F1 scored the answers, as a judge does
CATEGORY_METRICS = ("locomo_f1", "set_f1", "evidence_recall", "refused", *EARNED)
HALF = 0.5  # of a score: what is called right where two scores are compared
ANSWERABLE = "1–4"


def question_scores(task: Task, trajectory: Trajectory) -> list[dict[str, Any]]:
    """Category, answer and scores of every question that has a category; a failed attempt scores 0."""
    questions = questions_of(task)
    said = (trajectory.answers or [trajectory.answer]) if trajectory.valid else []
    said = [*said, *[""] * (len(questions) - len(said))]
    rows = []
    for i, (question, answer) in enumerate(zip(questions, said, strict=True), 1):
        fields = {**task.fields, **question.fields}
        if fields.get("category") in CATEGORIES:
            events = part_of(trajectory, i, answer).events
            scores = _scores(question, answer, fields, events)
            scores |= _earned(trajectory, i, scores["locomo_f1"])
            rows.append({"category": fields["category"], "answer": answer, "scores": scores})
    return rows


def _scores(
    question: Question, answer: str, fields: Mapping[str, Any], events: Sequence[Mapping[str, Any]]
) -> dict[str, float]:
    category = fields["category"]
    scores = {
        "locomo_f1": locomo_f1(answer, question.answers, category),
        "refused": float(refuses(given_answer(answer))),
    }
    if category != ADVERSARIAL:
        scores["set_f1"] = set_f1(answer, question.answers)
    found = [name for event in events for name in event.get("found", ())]
    if fields.get("evidence") and any("found" in event for event in events):
        scores["evidence_recall"] = evidence_recall(fields["evidence"], found)
    return scores


def _earned(trajectory: Trajectory, question: int, f1: float) -> dict[str, float]:
    """What the run's reward gave the answer to a question, and whether both call it right or both wrong."""
    given = (0.0,) if trajectory.score is None or not trajectory.valid else trajectory.score.questions[question:]
    return {"earned": given[0], "agrees_with_f1": float((given[0] >= HALF) == (f1 >= HALF))} if given else {}


def by_category(attempts: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Means with intervals over questions: of each category, of 1 to 4, and of all. ``attempts``: rows of each one."""
    rows = [row for attempt in attempts for row in attempt]
    other = any(row["scores"].get("earned", row["scores"]["locomo_f1"]) != row["scores"]["locomo_f1"] for row in rows)
    found: dict[str, Any] = {}
    for number, name in CATEGORIES.items():
        if part := [row for row in rows if row["category"] == number]:
            found[f"{number} {name}"] = _means(part, other)
    if part := [row for row in rows if row["category"] != ADVERSARIAL]:
        found[ANSWERABLE] = _means(part, other)
    return {**found, "overall": _means(rows, other)} if rows else {}


def _means(rows: Sequence[Mapping[str, Any]], other: bool) -> dict[str, Any]:
    names = CATEGORY_METRICS[: None if other else -len(EARNED)]
    values = {name: [r["scores"][name] for r in rows if name in r["scores"]] for name in names}
    return {name: of_scores(scores).row() for name, scores in values.items() if scores}


def category_table(found: Mapping[str, Any]) -> list[str]:
    """The same as a table in Markdown."""
    out = ["| category | metric | mean | 95 % interval | questions |", "|---|---|---|---|---|"]
    for category, metrics in found.items():
        for name, row in metrics.items():
            cells = f"{row['accuracy']:.3f} | {row['low']:.3f} – {row['high']:.3f} | {row['n']}"
            out.append(f"| {category} | {name} | {cells} |")
    return out
