"""`recollect sft-data`: training rows for each tool and of whole conversations, split by task, each row once."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from pydantic_core import to_json

from recollect.files.output import refuse_output, write_atomic, writing
from recollect.rewards.trajectory_total import reward_of
from recollect.runs.directory import remove_tree
from recollect.runtime.console import Console
from recollect.runtime.error_text import listed
from recollect.trajectories import row_templates as templating
from recollect.trajectories.field_names import NotATrajectory
from recollect.trajectories.parallel import in_order, workers_for
from recollect.trajectories.schema import Record
from recollect.trajectories.stream import FilePiece, files_of, records, units
from recollect.trajectories.training_rows import conversation, tool_rows
from recollect.trajectories.unify import unify
from recollect.types import BadInput
from recollect.workflows.trajectories.convert import FileProblems, check_domain, size_of, stem_of

SUMMARY = "SUMMARY.json"
CONVERSATIONS = "conversations"
COUNTED = ("train", "val", "duplicates")
_UNSAFE = re.compile(r"[^\w.-]+")


@dataclass(frozen=True)
class Choice:
    """Which trajectories become rows, and how."""

    templates: str | None = None
    domain: str | None = None
    min_reward: float | None = None
    val_ratio: float = 0.05
    seed: int = 0


class ToolRow(NamedTuple):
    """A training row: its data set, its task, what it says (of rows that say the same one is kept), its text."""

    name: str
    task: int
    said: bytes
    text: bytes


@dataclass
class Made:
    """The rows of a unit, and what happened on the way."""

    rows: list[ToolRow] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    size: int = 0


@lru_cache(maxsize=4)
def loaded(path: str | None) -> templating.Templates:
    """Templates, read once in a process."""
    return templating.load(path)


def make_unit(unit: list[FilePiece], choice: Choice) -> Made:
    """The rows of some pieces."""
    made = Made(size=sum(map(size_of, unit)))
    for piece in unit:
        for found in records(piece):
            try:
                if found.wrong:
                    raise NotATrajectory(found.wrong)
                record = unify(found.value, choice.domain, f"{stem_of(found.path)}-{found.place.rpartition(' ')[2]}")
            except NotATrajectory as error:
                made.problems.append((found.where, str(error)))
                continue
            _add(record, choice, made)
    return made


def _add(record: Record, choice: Choice, made: Made) -> None:
    made.counts["trajectories"] += 1
    if choice.min_reward is not None and reward_of(record) < choice.min_reward:
        made.counts["below min_reward"] += 1
        return
    task, written = task_of(record), loaded(choice.templates)
    rows = list(tool_rows(record, written))
    whole = conversation(record, written)
    if whole is None:
        made.counts["without anything said"] += 1
        return
    made.counts["kept"] += 1
    made.counts[f"domain {record['domain']}"] += 1
    for tool, row in rows:
        made.rows.append(ToolRow(folder_of(tool), task, _digest(row["prompt"], row["response"]), to_json(row)))
    said = _digest(*(f"{m['role']}\0{m['content']}\0{m.get('tool_calls')}" for m in whole["messages"]))
    made.rows.append(ToolRow(CONVERSATIONS, task, said, to_json(whole, inf_nan_mode="constants")))


def _digest(*texts: str) -> bytes:
    return hashlib.blake2b("\0\0".join(texts).encode("utf-8", "surrogatepass"), digest_size=12).digest()


def task_of(record: Record) -> int:
    """The task that a trajectory is an attempt at, as a number: the same question is the same task."""
    asked = " ".join(record["question"].lower().split())
    name = asked or str(record["metadata"].get("duplicate_of") or record["task_id"]).partition("#")[0]
    return int.from_bytes(hashlib.blake2b(f"{record['domain']}\0{name}".encode(), digest_size=8).digest(), "big")


TAKEN = (CONVERSATIONS, SUMMARY.lower())


def folder_of(tool: str) -> str:
    """A tool's name as that of a folder, apart from what else is there."""
    name = _UNSAFE.sub("_", tool).lstrip(".")[:80] or "tool"
    return f"{name}_tool" if name.lower() in TAKEN else name


class DataSet:
    """Rows of one data set, first all in one file with their tasks, then split."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder, self.seen = folder, set[bytes]()
        self.file: BinaryIO = (folder / "all.tmp").open("wb")
        self.counts: Counter[str] = Counter()

    def add(self, row: ToolRow) -> None:
        """Take a row, unless one that says the same is there."""
        if row.said in self.seen:
            self.counts["duplicates"] += 1
            return
        self.seen.add(row.said)
        self.file.write(row.task.to_bytes(8, "big") + row.text + b"\n")

    def split(self, held_out: set[int]) -> None:
        """Write train.jsonl and val.jsonl."""
        self.file.close()
        source = self.folder / "all.tmp"
        with (
            source.open("rb") as rows,
            (self.folder / "train.jsonl").open("wb") as train,
            (self.folder / "val.jsonl").open("wb") as val,
        ):
            while head := rows.read(8):
                held = int.from_bytes(head, "big") in held_out
                self.counts["val" if held else "train"] += 1
                (val if held else train).write(rows.readline())
        source.unlink()


def held_out_tasks(tasks: set[int], ratio: float, seed: int) -> set[int]:
    """A share of the tasks, the same ones for a seed; at least one where there are two, unless the share is 0."""
    count = round(ratio * len(tasks))
    count = max(count, 1) if ratio > 0 and len(tasks) > 1 else count
    order = sorted(tasks, key=lambda t: hashlib.blake2b(f"{seed}|{t}".encode(), digest_size=8).digest())
    return set(order[:count])


def sft_data(given: Sequence[str], out: Path, choice: Choice, console: Console, overwrite: bool = False) -> int:
    """Write everything to ``out``; returns how many records could not be read."""
    checked(choice)
    refuse_output(out, f"--out {out}")
    paths = files_of(given)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        if not overwrite or not (out / SUMMARY).is_file():
            hint = ", or give --overwrite" if (out / SUMMARY).is_file() else ""
            raise BadInput(f"{out} is not empty; name another --out{hint}")
        remove_tree(out)
    part = out.with_name(f".{out.name}.part")
    remove_tree(part)
    try:
        with writing(out):
            return _write(given, paths, out, part, choice, console)
    finally:
        remove_tree(part)


def _write(given: Sequence[str], paths: Sequence[Path], out: Path, part: Path, choice: Choice, console: Console) -> int:
    """Make the folder ``part`` and give it its name."""
    sets: dict[str, DataSet] = {}
    tasks: set[int] = set()
    counts: Counter[str] = Counter()
    problems = FileProblems(console)
    size = sum(p.stat().st_size for p in paths)
    with console.progress("MB read", max(1, size >> 20)) as advance:
        for made in in_order(partial(make_unit, choice=choice), units(paths), workers_for(size)):
            for row in made.rows:
                tasks.add(row.task)
                if row.name not in sets:
                    sets[row.name] = DataSet(part / row.name)
                sets[row.name].add(row)
            counts += made.counts
            problems.add(made.problems)
            advance("", made.size >> 20)
    problems.end(counts["trajectories"])
    if not sets:
        raise BadInput(f"no trajectory of {listed(given)} can be trained on: {dict(counts) or 'none was read'}")
    held = held_out_tasks(tasks, choice.val_ratio, choice.seed)
    for made_set in sets.values():
        made_set.split(held)
    write_atomic(part / SUMMARY, to_json(summary(choice, counts, tasks, held, sets), indent=2) + b"\n")
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.is_dir():
        out.rmdir()
    part.rename(out)
    show(sets, counts, out, console)
    return problems.count


def checked(choice: Choice) -> None:
    """Refuse options that cannot work."""
    check_domain(choice.domain)
    loaded(choice.templates)
    if not 0 <= choice.val_ratio < 1:
        raise BadInput(f"--val-ratio {choice.val_ratio} must be at least 0 and less than 1")


def summary(choice: Choice, counts: Counter[str], tasks: set[int], held: set[int], sets: dict[str, DataSet]) -> Any:
    """What was written."""
    return {
        **asdict(choice),
        "counts": dict(counts),
        "tasks": {"train": len(tasks - held), "val": len(held)},
        "datasets": {name: {k: s.counts[k] for k in COUNTED} for name, s in sorted(sets.items())},
    }


def show(sets: dict[str, DataSet], counts: Counter[str], out: Path, console: Console) -> None:
    """A table of the data sets."""
    rows = [[n, *(str(s.counts[k]) for k in COUNTED)] for n, s in sorted(sets.items())]
    console.table(f"{counts['kept']} of {counts['trajectories']} trajectories in {out}", ["", *COUNTED], rows)


def preview(given: Sequence[str], choice: Choice, count: int, console: Console) -> None:
    """Print the first rows of each data set, and write nothing."""
    checked(choice)
    shown: Counter[str] = Counter()
    for unit in units(files_of(given)):
        for row in make_unit(unit, choice).rows:
            shown[row.name] += 1
            if shown[row.name] <= count:
                console.say(f"--- {row.name}")
                console.say(_readable(row.text))
    if not shown:
        raise BadInput(f"no trajectory of {listed(given)} can be trained on")


def _readable(row: bytes) -> str:
    from pydantic_core import from_json

    value = from_json(row)
    if "messages" in value:
        return "\n".join(f"[{m['role']}] {m['content'] or text_of_calls(m)}" for m in value["messages"])
    return f"{value['prompt']}\n>>> {value['response']}"


def text_of_calls(message: Record) -> str:
    """The calls of a message without text."""
    calls = (c["function"] for c in message.get("tool_calls") or ())
    return "; ".join(f"{f['name']}({f['arguments']})" for f in calls)
