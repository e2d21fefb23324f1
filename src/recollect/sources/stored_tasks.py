"""Stored trajectories as a source of tasks: reinforcement starts from the tasks that somebody has solved well enough.

Understood are run directories, their `.jsonl.zst` files, and files of trajectories, unified or in any form that
`recollect convert` reads (one object, a list, or one in each line). Attempts at one task are one task; it is taken when
its best attempt reached the reward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from recollect.data.files import expand, read_rows
from recollect.domains import DOMAIN_NAMES
from recollect.files.reading import read_json
from recollect.rewards.trajectory_total import reward_of
from recollect.runs.directory import read_trajectories
from recollect.types import BadInput

STORED = ".jsonl.zst"  # trajectories as a run stores them
STEP = frozenset(("role", "tool", "action"))  # one of them is in every step of an attempt
Row = dict[str, Any]


def is_trajectory(row: Mapping[str, Any]) -> bool:
    """True for a stored attempt: it has turns, actions beside what was asked, or steps of some agent."""
    return isinstance(row.get("turns"), list) or ("actions" in row and "question" in row) or _has_steps(row)


def _has_steps(row: Mapping[str, Any]) -> bool:
    lists = (row.get(name) for name in ("actions", "steps", "trajectory"))
    return any(
        isinstance(steps, list) and any(isinstance(s, Mapping) and s.keys() & STEP for s in steps) for steps in lists
    )


def unified(place: str, row: Row) -> Row:
    """An attempt of another system in unified form; every other row as it is."""
    if isinstance(row.get("turns"), list) or isinstance(row.get("messages"), list) or not is_trajectory(row):
        return row
    from recollect.trajectories.field_names import NotATrajectory
    from recollect.trajectories.unify import unify

    path = Path(place.partition(", ")[0])
    folder = path.parent.name if row.get("domain") is None and path.parent.name in DOMAIN_NAMES else None
    try:
        return unify(row, folder, path.name.partition(".")[0])
    except NotATrajectory as error:
        if "actions" in row and isinstance(row.get("question"), str):  # it says enough without a domain
            return row
        raise BadInput(f"{place}: {error}") from None


def turns_of(row: Mapping[str, Any]) -> list[Row] | None:
    """The turns of a stored attempt, with ids; unified ones keep them in their metadata. None: it has none."""
    about = row.get("metadata")
    for turns in (row.get("turns"), about.get("turns") if isinstance(about, Mapping) else None):
        if isinstance(turns, list) and all(isinstance(t, Mapping) and "ids" in t for t in turns):
            return turns
    return None


def has_outcome(row: Mapping[str, Any]) -> bool:
    """False for an attempt of recollect's own without a reward: it has failed on the way."""
    return row.get("reward") is not None or turns_of(row) is None


def trajectory_rows(paths: Sequence[str]) -> Iterator[tuple[str, Row]]:
    """(place, row) of every stored trajectory."""
    for name in expand(paths):
        path = Path(name).expanduser()
        if (path / "trajectories").is_dir():
            for file in sorted((path / "trajectories").glob(f"step-*{STORED}")):
                yield from _numbered(file)
        elif path.name.endswith(STORED) and path.is_file():
            yield from _numbered(path)
        elif path.is_dir():
            files = sorted(str(f) for f in path.rglob("*") if f.suffix in (".json", ".jsonl") and f.name[0] != ".")
            if not files:
                raise BadInput(f"{name} is a folder without trajectories (.json, .jsonl, or a run of recollect)")
            yield from trajectory_rows(files)
        else:
            yield from _file(path)


def _numbered(path: Path) -> Iterator[tuple[str, Row]]:
    for number, row in enumerate(read_trajectories(path), 1):
        yield f"{path}, line {number}", row


def _file(path: Path) -> Iterator[tuple[str, Row]]:
    """Rows of a file, attempts in unified form; a JSON file may also be a single one, or an object of several."""
    for place, row in _rows(path):
        yield place, unified(place, row)


def _rows(path: Path) -> Iterator[tuple[str, Row]]:
    if path.suffix == ".json" and path.is_file():
        value = read_json(path)
        if isinstance(value, dict):
            from recollect.trajectories.collection import members

            inside = members(value)
            yield from ((str(path), row) for row in ([value] if inside is None else inside))
            return
    yield from read_rows(path)


def first_row(path: Path) -> Row | None:
    """The first row of a file."""
    return next((row for _, row in _rows(path)), None)


def holds_trajectories(paths: Sequence[str]) -> bool:
    """True when some files are stored trajectories: runs, folders, or a first row that is one."""
    first = Path(expand(paths)[0]).expanduser()
    if first.is_dir() or first.name.endswith(STORED):
        return True
    row = first_row(first) if first.suffix in (".json", ".jsonl") else None
    return row is not None and is_trajectory(row)


def create_rl_dataset(
    paths: Sequence[str | Path] | str | Path, min_reward: float = 0.0, say: Callable[[str], None] = lambda text: None
) -> list[Row]:
    """The tasks of stored trajectories whose best attempt reached a reward, as rows that `data.train_files` may hold.

    A row has id, question, answer (the accepted ones; else the final answer of a successful attempt), data_source,
    reward (of the best attempt; calculated where none is recorded) and what the trajectory keeps of its task, such as
    its context.
    """
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    found: dict[tuple[str, str], Row] = {}
    for place, row in trajectory_rows([str(p) for p in given]):
        if not is_trajectory(row):
            raise BadInput(f"{place}: not a trajectory: it has {', '.join(row) or 'nothing'}")
        if row.get("question") == "":
            say(f"{place}: left out, it does not say what was asked")
            continue
        reward = reward_of(row, place) if has_outcome(row) else None
        if reward is None or not reward >= min_reward:
            continue
        if not isinstance(row.get("question"), str):
            raise BadInput(f"{place}: a trajectory has a question, which is a text; it has {', '.join(row)}")
        if not row["question"].strip():  # nobody says what the task was
            continue
        seed = _seed(row, reward)
        key = (str(seed["data_source"]), str(seed["id"]))
        if key not in found or found[key]["reward"] < reward:
            found[key] = seed
    return list(found.values())


def task_id_of(row: Mapping[str, Any]) -> str:
    """The task that an attempt is one at; unified ones keep it in their metadata, beside an id of their own."""
    about = row.get("metadata")
    kept = about.get("task_id") if isinstance(about, Mapping) else None
    return str(kept or row.get("task_id", ""))


def _seed(row: Row, reward: float) -> Row:
    """The task behind an attempt."""
    about = row.get("metadata") if isinstance(row.get("metadata"), Mapping) else {}
    assert isinstance(about, Mapping)
    kept = about.get("task") if isinstance(about.get("task"), Mapping) else about
    assert isinstance(kept, Mapping)
    answers = row.get("answers") or kept.get("answers") or kept.get("golden_answers") or kept.get("answer")
    if not answers and row.get("success"):
        answers = row.get("final_answer")
    return {
        **{k: v for k, v in kept.items() if k not in ("answers", "golden_answers")},
        "id": task_id_of(row),
        "question": row["question"],
        "answer": list(answers) if isinstance(answers, list | tuple) else [answers] if answers else [],
        "data_source": str(row.get("domain") or row.get("source") or "default"),
        "reward": reward,
    }
