"""Tasks with a document that is read once and several questions about it, each asked at its place in the document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recollect.data.columns import ANSWER, ANSWER_NAMES, accepted_answers, question_list, texts_of, truth_of
from recollect.runtime.error_text import listed
from recollect.types import BadInput, Task

DATES = ("date", "date_time", "timestamp", "time")
TAKEN = (*ANSWER_NAMES, "question", "position", "data_source", "source", "reward_model")  # columns with a meaning here
TEXTS = ("text", "content", "session", "turns", "messages", "dialogue")


@dataclass(frozen=True)
class Question:
    """One question of a task."""

    text: str
    answers: tuple[str, ...]
    position: int | None = None  # how many chunks have been read when it is asked; None: all of them
    source: str = "default"
    fields: Mapping[str, Any] = field(default_factory=dict, compare=False)  # everything else that its row held

    def task(self, whole: Task) -> Task:
        """The question as a task of its own, for rewards of a single answer."""
        fields = {**whole.fields, **self.fields} if self.fields else whole.fields
        return Task(whole.id, self.text, whole.context, self.answers, self.source, fields, whole.place)


def questions_of(task: Task) -> list[Question]:
    """The questions of a task: those under ``questions``, or its only one."""
    rows = task.fields.get("questions")
    if not rows:
        position = task.fields.get("position")
        return [Question(task.question, task.answers, _position(position, task.place), task.source)]
    return [_question(row, task.source, f"{task.place}, question {i}") for i, row in enumerate(rows, 1)]


def stored_questions(task: Task) -> list[dict[str, Any]]:
    """The questions as plain objects, to be stored; one names its source where that is not the task's."""
    return [
        {**q.fields, "question": q.text, "answers": list(q.answers), "position": q.position}
        | ({"source": q.source} if q.source != task.source else {})
        for q in questions_of(task)
    ]


def _question(row: Any, source: str, place: str) -> Question:
    if not isinstance(row, Mapping) or not str(row.get("question") or "").strip():
        raise BadInput(f"{place}: expected an object with `question` and `answer`")
    answers = tuple(accepted_answers(row, ANSWER, place))
    own = str(row.get("data_source") or row.get("source") or source)
    more = {key: value for key, value in row.items() if key not in TAKEN}
    return Question(str(row["question"]), answers, _position(row.get("position"), place), own, more)


def _position(value: Any, place: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadInput(f"{place}: position={value} is not a number of chunks, 0 or more")
    return value


def check_questions(rows: Any, place: str, need_answers: bool) -> tuple[str, list[str]]:
    """The first question and its answers, once all of them are known to be fine."""
    if not isinstance(rows, Sequence) or isinstance(rows, str | bytes) or not rows:
        raise BadInput(f"{place}: `questions` has to be a list of objects with `question` and `answer`")
    made = [_question(row, "default", f"{place}, question {i}") for i, row in enumerate(rows, 1)]
    for i, question in enumerate(made, 1):
        if need_answers and not question.answers:
            raise BadInput(f"{place}, question {i}: no accepted answer under `answer`")
    return made[0].text, list(made[0].answers)


def with_questions(row: Mapping[str, Any], prompt_key: str, answer_key: str, place: str) -> Mapping[str, Any]:
    """A row whose prompt is a list of questions, with those and their answers under ``questions``; others as they are.

    The answers are in the order of the questions; of a single question all of them are accepted.
    """
    asked = None if row.get("questions") is not None else question_list(row, prompt_key)
    if asked is None:
        return row
    truth = truth_of(row, answer_key)
    given = [truth] if len(asked) == 1 else truth
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        given = [None] * len(asked) if truth is None else [truth]
    if len(given) != len(asked):
        raise BadInput(f"{place}: {len(asked)} questions, and answers to {len(given)}; each question needs its own")
    pairs = zip(asked, given, strict=True)
    return {**row, "questions": [{"question": q, "answer": texts_of(a, place)} for q, a in pairs]}


def given_chunks(context: Any) -> Iterator[str] | None:
    """The chunks of a document that comes in chunks: texts, or dated sessions; None for one running text."""
    if not isinstance(context, Sequence) or isinstance(context, str | bytes):
        return None
    return (chunk_text(item).encode("utf-8", "replace").decode() for item in context)  # no half characters


def chunk_text(item: Any) -> str:
    """A chunk as text: itself, or a session with its date before it."""
    if isinstance(item, str):
        return item
    if not isinstance(item, Mapping):
        raise BadInput(f"a chunk is a text or an object with one of {', '.join(TEXTS)}; found {type(item).__name__}")
    body: Any = next((item[name] for name in TEXTS if item.get(name) is not None), None)
    if body is None:
        raise BadInput(f"a session needs one of {', '.join(TEXTS)}; it has {listed(item)}")
    if not isinstance(body, str):
        body = "\n".join(map(_line, body))
    date = next((item[name] for name in DATES if item.get(name)), None)
    return f"{date}: {body}" if date is not None else body


def _line(said: Any) -> str:
    """A line of a dialogue: who said what."""
    if isinstance(said, Mapping):
        who = said.get("speaker") or said.get("role") or said.get("name")
        text = str(said.get("text") or said.get("content") or "")
        return f"{who}: {text}" if who else text
    return str(said)
