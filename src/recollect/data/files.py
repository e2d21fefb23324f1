"""Tasks from JSON, JSONL, parquet and CSV files, with errors that name file and line."""

from __future__ import annotations

import csv
import glob
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from recollect.chat.media import refuse_media
from recollect.config import Config
from recollect.data.columns import accepted_answers, prompt_names, question_hint, question_of
from recollect.data.paragraphs import streamed
from recollect.data.questions import check_questions, with_questions
from recollect.data.sections import SECTIONS, checked_texts, sections_given
from recollect.files.reading import MB, lines, open_file, parse_json, read_json, refuse_odd
from recollect.rewards import needs_answers
from recollect.rewards.reward_names import scores_one_answer
from recollect.types import BadInput, Task

MOST_CELL = 64 * MB  # characters of a value in a table
MANY = ("tool_memory", "concat", "rag")  # agents that answer several questions about a document, and take chunks
READERS = ("recurrent", *MANY)  # agents that need a document


def read_rows(path: str | Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, row) for every row of a file; the place is for messages."""
    path = Path(path).expanduser()
    refuse_odd(path)
    if path.suffix == ".parquet":
        yield from _parquet(path)
    elif path.suffix == ".json":
        yield from _json(path)
    elif path.suffix in (".jsonl", ".ndjson"):
        yield from _jsonl(path)
    elif path.suffix in (".csv", ".tsv"):
        yield from _csv(path)
    else:
        raise BadInput(f"{path}: data files end in .json, .jsonl, .parquet, .csv or .tsv")


def expand(paths: Sequence[str]) -> list[str]:
    """Paths with every pattern (``data/*.jsonl``) replaced by the files it matches, in order of their names."""
    found: list[str] = []
    for path in paths:
        place = str(Path(path).expanduser())
        if Path(place).exists() or not glob.has_magic(place):
            found.append(path)
            continue
        matches = sorted(m for m in glob.glob(place, recursive=True) if Path(m).is_file())
        if not matches:
            raise BadInput(f"no data file matches {path}")
        found += matches
    return found


def _json(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    rows = read_json(path)
    if not isinstance(rows, list):
        raise BadInput(f"{path}: expected a JSON array of objects, found {type(rows).__name__}")
    for i, row in enumerate(rows):
        yield f"{path}, row {i + 1}", _object(row, f"{path}, row {i + 1}")


def _jsonl(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(lines(path), 1):
        if line.strip():
            place = f"{path}, line {number}"
            yield place, _object(parse_json(line, str(path), number), place)


def _parquet(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    import pyarrow
    import pyarrow.parquet as parquet

    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=256):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path}, row {number}", {name: _decoded(value) for name, value in row.items()}
    except BadInput:
        raise
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError, RecursionError, MemoryError) as error:
        what = f"is damaged after row {number}" if number else "is not a parquet file that can be read"
        raise BadInput(f"{path} {what}: {' '.join(str(error).split())[:200]}") from None


def _decoded(value: Any) -> Any:
    """A value in which bytes are text, as far as they are UTF-8: some writers store texts as bytes."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    if isinstance(value, dict):
        return {name: _decoded(inner) for name, inner in value.items()}
    return [_decoded(inner) for inner in value] if isinstance(value, list) else value


def _csv(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows of a table whose first line names the columns; every value is a text, an empty one is absent."""
    csv.field_size_limit(MOST_CELL)
    with open_file(path) as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter="\t" if path.suffix == ".tsv" else ",", strict=True)
        try:
            names = next(reader, [])
            if len(set(names)) < len(names) or not all(n.strip() for n in names):
                raise BadInput(f"{path}, line 1: the columns need names that differ; it has {', '.join(names)}")
            for cells in reader:
                place = f"{path}, line {reader.line_num}"
                if len(cells) != len(names) and cells:
                    raise BadInput(f"{place}: {len(cells)} values for {len(names)} columns")
                if cells:
                    yield place, {n: c for n, c in zip(names, cells, strict=True) if c}
        except csv.Error as error:
            raise BadInput(f"{path}, line {reader.line_num}: broken CSV: {error}") from None
        except UnicodeDecodeError as error:
            raise BadInput(f"{path} is not UTF-8 (byte {error.start})") from None


def _object(row: Any, place: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise BadInput(f"{place}: expected an object, found {type(row).__name__}")
    return row


def as_task(row: Mapping[str, Any], place: str, index: int, cfg: Config) -> Task:
    """A task from a data row. The columns of MemAgent and of the two-stage system are understood too."""
    data = cfg.data
    refuse_media(row, [*prompt_names(data.prompt_key), data.context_key], place)
    row = with_questions(row, data.prompt_key, data.answer_key, place)
    question, answers = _asked(row, place, cfg)
    context = _document(row, place, cfg)
    fields = {k: v for k, v in row.items() if k not in (data.context_key, SECTIONS, "paragraph_ids")}
    source = str(row.get("data_source") or row.get("source") or "default")
    accepted = tuple(map(sound, answers))
    return Task(str(row.get("id", index)), sound(question), context, accepted, source, fields, place)


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
            f"{place}: no text under data.prompt_key={data.prompt_key}; it has {', '.join(row) or 'nothing'}"
            + question_hint(row, data.prompt_key)
        )
    answers = accepted_answers(row, data.answer_key, place)
    if not answers and need_answers:
        raise BadInput(f"{place}: no accepted answer under data.answer_key={data.answer_key}; it has {', '.join(row)}")
    return asked, answers


def _question(row: Mapping[str, Any], key: str, place: str) -> str | None:
    try:
        return question_of(row, key)
    except BadInput as error:
        raise BadInput(f"{place}: {error}") from None


def _check_several(place: str, cfg: Config) -> None:
    """Refuse an agent that answers one question, and a reward that would look at the first answer alone."""
    if cfg.agent.agent_type not in MANY:
        raise BadInput(f"{place}: several `questions` are for agent.agent_type={', '.join(MANY)}")
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
    if agent in READERS and not _readable(context, f"{place}: data.context_key={key}"):
        problem = "an empty document" if key in row or SECTIONS in row else "no document"
        if context is not None and not isinstance(context, str | list):
            problem = f"not text but a {type(context).__name__}"
        raise BadInput(f"{place}: {problem} under data.context_key={key}; it has {', '.join(row)}")
    return sound(context) if isinstance(context, str) else context


def _readable(context: Any, where: str) -> bool:
    """True for a document that an agent can read: text, something that streams it, sections or sessions."""
    if isinstance(context, str):
        return bool(context.strip())
    if hasattr(context, "pieces"):
        return True
    texts = checked_texts(context, where)
    return texts is not None and any(text.strip() for text in texts)


def sound(text: str) -> str:
    """A text without half characters (lone surrogates), which JSON can hold and no tokenizer takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def agent_of_rows(paths: Sequence[str]) -> str | None:
    """The agent that the first row of some files names under ``agent_name``; None where there is none to read."""
    try:
        _, row = next(iter(read_rows(expand(paths)[0])))
    except (BadInput, OSError, ValueError, StopIteration):
        return None  # what is wrong with the files is said when they are read
    name = row.get("agent_name")
    return name if isinstance(name, str) and name.strip() else None


def load_tasks(cfg: Config, paths: Sequence[str]) -> list[Task]:
    """All tasks of some files."""
    tasks = tasks_of(cfg, (found for path in expand(paths) for found in read_rows(path)))
    if not tasks:
        raise BadInput(f"no tasks in {', '.join(map(str, paths))}: the data is empty")
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
