"""Find the tasks of a run again by their ids: stored attempts keep the question, not the document.

Made-up tasks are made again; tasks of data files are read from the run's files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from recollect.config import Config
from recollect.config.compose import from_yaml
from recollect.domains.families import made_up
from recollect.files.rows import expand
from recollect.files.yaml import read_yaml
from recollect.registries import only_read
from recollect.trajectories.codec import Row
from recollect.trajectories.stored_rows import STORED
from recollect.types import BadInput, Task

Tasks = Callable[[Config], Sequence[Task]]  # those of data.train_files


def completed(rows: Sequence[Row], cfg: Config, read: Tasks, say: Callable[[str], None]) -> list[Row]:
    """Rows completed with what their tasks hold besides the question. Rows whose tasks are gone stay as they are."""
    found: dict[str, Task] = {}
    wanted = [str(row["id"]) for row in rows]
    for run in runs_of(cfg.data.train_files):
        try:
            found |= tasks_of_run(run, wanted, read)
        except BadInput as error:
            say(f"the tasks of {run} are known by question and answer alone: {error}")
    return [_with(row, found.get(str(row["id"])), cfg.data.context_key) for row in rows]


def runs_of(paths: Sequence[str]) -> list[Path]:
    """The run directories that some paths name, or lie in."""
    places = [Path(name).expanduser() for name in expand(paths)]
    runs = [path.absolute().parent.parent if path.name.endswith(STORED) else path for path in places]
    return [run for run in dict.fromkeys(runs) if (run / "config.yaml").is_file()]


def tasks_of_run(run: Path, wanted: Sequence[str], read: Tasks) -> dict[str, Task]:
    """Tasks of a run by id, as far as they can be made or read again."""
    path = run / "config.yaml"
    with only_read():  # it may be a run of somebody else's
        cfg = from_yaml(read_yaml(path, "configuration"), str(path))
        tasks = read(cfg) if cfg.data.train_files else [made for name in wanted if (made := _made_up(cfg, name))]
    ids = set(wanted)
    return {task.id: task for task in tasks if task.id in ids}


def _made_up(cfg: Config, name: str) -> Task | None:
    """The training task with an id, which ends with its number."""
    number = name.rpartition("-")[2]
    if not number.isdecimal():
        return None
    made = made_up(cfg).train(cfg, int(number) // cfg.data.train_batch_size, int(number))
    return made if made.id == name else None


def _with(row: Row, task: Task | None, context_key: str) -> Row:
    if task is None:
        return row
    return {**task.fields, **({} if task.context is None else {context_key: task.context}), **row}
