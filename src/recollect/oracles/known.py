"""What an oracle knows of a task: the answer to each question, and the sentences of the document that give it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recollect.data.documents import pieces
from recollect.data.evidence import sentence_spans
from recollect.data.questions import given_chunks, questions_of
from recollect.domains.expert_texts import best
from recollect.rewards.text import normalize
from recollect.types import Task


@dataclass(frozen=True)
class Known:
    """A question, its answer, and the evidence: empty where no sentence holds the answer."""

    question: str
    answer: str
    evidence: tuple[str, ...]


def known_of(task: Task) -> list[Known]:
    """What is known about each question: the row's `evidence`, or the sentence with the answer that is most alike."""
    questions = questions_of(task)
    given = task.fields.get("evidence")
    if len(questions) == 1 and isinstance(given, Sequence) and not isinstance(given, str) and any(given):
        (only,) = questions
        return [Known(only.text, only.answers[0] if only.answers else "", tuple(map(str, filter(None, given))))]
    lines = _sentences(task)
    return [_found(q.text, q.answers, lines) for q in questions]


def _found(question: str, answers: Sequence[str], lines: Sequence[str]) -> Known:
    for answer in answers:
        wanted = normalize(answer)
        holding = [line for line in lines if wanted and f" {wanted} " in f" {normalize(line)} "]
        if holding:
            return Known(question, answer, (best(question, holding),))
    return Known(question, answers[0] if answers else "", ())


def _sentences(task: Task) -> list[str]:
    chunks = given_chunks(task.context)
    texts = chunks if chunks is not None else ["".join(pieces(task.context))] if task.context else []
    return [text[a:b].strip() for text in texts for a, b in sentence_spans(text) if text[a:b].strip()]
