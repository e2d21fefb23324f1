"""Tasks from the rows of data files. What is wrong with a row is said with its file and line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from recollect.chat.media import refuse_media
from recollect.config import Config
from recollect.config.reward_terms import needs_answers, scores_one_answer
from recollect.data.columns import accepted_answers, prompt_names, question_hint, question_of
from recollect.data.paragraphs import streamed
from recollect.data.questions import check_questions, with_questions
from recollect.data.sections import SECTIONS, checked_texts, sections_given
from recollect.files.rows import expand, read_rows
from recollect.images.content import without_images
from recollect.registries import AGENTS
from recollect.runtime.error_text import listed
from recollect.types import BadInput, Task


def as_task(row: Mapping[str, Any], place: str, index: int, cfg: Config) -> Task:
    """A task from a data row. The columns of MemAgent and of the two-stage system are understood too."""
    data = cfg.data
    names = prompt_names(data.prompt_key)
    row, images = without_images(row, names, place)
    refuse_media(row, [*names, data.context_key], place)
    row = with_questions(row, data.prompt_key, data.answer_key, place)
    question, answers = _asked(row, place, cfg)
    context = _document(row, place, cfg)
    fields = {k: v for k, v in row.items() if k not in (data.context_key, SECTIONS, "paragraph_ids")}
    source = str(row.get("data_source") or row.get("source") or "default")
    accepted = tuple(map(without_surrogates, answers))
    name = str(row.get("id", index))
    task = Task(name, without_surrogates(question), context, accepted, source, fields, place, images)
    _check_images(task, cfg)
    spec = AGENTS.of(cfg.agent.agent_type)
    if spec and spec.task_problem and (problem := spec.task_problem(cfg, task)):
        raise BadInput(f"{place}: {problem}")
    return task


def _check_images(task: Task, cfg: Config) -> None:
    """Refuse images where the agent would not show them."""
    spec = AGENTS.of(cfg.agent.agent_type)
    if task.images and spec is not None and not spec.asks_first:
        shown = ", ".join(name for name in AGENTS.those("asks_first"))
        raise BadInput(
            f"{task.place}: the prompt holds {len(task.images)} images, and agent.agent_type={spec.name} shows "
            f"none; these do: {shown}"
        )


def _asked(row: Mapping[str, Any], place: str, cfg: Config) -> tuple[str, list[str]]:
    """The question and its accepted answers; of several questions the first."""
    data, need_answers = cfg.data, needs_answers(cfg.agent.reward_name)  # a reward of the user's own may not need one
    if row.get("questions") is not None:
        question, answers = check_questions(row["questions"], place, need_answers)
        if len(row["questions"]) > 1:
            _check_several(place, cfg)
        return question, answers
    asked = _question(row, data.prompt_key, place)
    if asked is None:
        raise BadInput(
            f"{place}: no text under data.prompt_key={data.prompt_key}; it has {listed(row) or 'nothing'}"
            + question_hint(row, data.prompt_key)
        )
    answers = accepted_answers(row, data.answer_key, place)
    if not answers and need_answers:
        raise BadInput(f"{place}: no accepted answer under data.answer_key={data.answer_key}; it has {listed(row)}")
    return asked, answers


def _question(row: Mapping[str, Any], key: str, place: str) -> str | None:
    try:
        return question_of(row, key)
    except BadInput as error:
        raise BadInput(f"{place}: {error}") from None


def _check_several(place: str, cfg: Config) -> None:
    """Refuse an agent that answers one question, and a reward that would look at the first answer alone."""
    if not AGENTS.knows(cfg.agent.agent_type, "many_questions"):
        raise BadInput(
            f"{place}: several `questions` are for agent.agent_type={', '.join(AGENTS.those('many_questions'))}"
        )
    if scores_one_answer(cfg.agent.reward_name):
        raise BadInput(
            f"{place}: several `questions`, and agent.reward_name={cfg.agent.reward_name} scores one answer; set "
            f"agent.reward_name=memory_qa memory.scores=[{cfg.agent.reward_name.strip('[]')}]"
        )


def _document(row: Mapping[str, Any], place: str, cfg: Config) -> Any:
    """The document of a row: its own sections, text, or something that streams it."""
    key, agent = cfg.data.context_key, cfg.agent.agent_type
    context: Any = sections_given(row, place)
    if context is None:
        context = row.get(key)
    if context is None:
        context = streamed(row, place)
    if AGENTS.knows(agent, "reads_document") and not _readable(context, f"{place}: data.context_key={key}"):
        problem = "an empty document" if key in row or SECTIONS in row else "no document"
        if context is not None and not isinstance(context, str | list):
            problem = f"not text but a {type(context).__name__}"
        raise BadInput(f"{place}: {problem} under data.context_key={key}; it has {listed(row)}")
    return without_surrogates(context) if isinstance(context, str) else context


def _readable(context: Any, where: str) -> bool:
    """True for a document that an agent can read: text, something that streams it, sections or sessions."""
    if isinstance(context, str):
        return bool(context.strip())
    if hasattr(context, "pieces"):
        return True
    texts = checked_texts(context, where)
    return texts is not None and any(text.strip() for text in texts)


def without_surrogates(text: str) -> str:
    """A text without half characters (lone surrogates), which JSON can hold and no tokenizer takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def load_tasks(cfg: Config, paths: Sequence[str]) -> list[Task]:
    """All tasks of some files."""
    tasks = tasks_of(cfg, (found for path in expand(paths) for found in read_rows(path)))
    if not tasks:
        raise BadInput(f"no tasks in {listed(paths)}: the data is empty")
    return tasks


def tasks_of(cfg: Config, rows: Iterable[tuple[str, Mapping[str, Any]]]) -> list[Task]:
    """The tasks of (place, row) pairs, each with an id of its own."""
    tasks = [as_task(row, place, i, cfg) for i, (place, row) in enumerate(rows)]
    seen: set[str] = set()
    for i, task in enumerate(tasks):
        while task.id in seen:
            task.id = f"{task.id}#{i}"
        seen.add(task.id)
    return tasks
