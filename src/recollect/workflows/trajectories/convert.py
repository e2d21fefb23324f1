"""`recollect convert`: trajectories of any known format as unified ones, streamed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO

from pydantic_core import to_json

from recollect.files.output import refuse_output, refuse_unwritable, writing
from recollect.registries import DOMAINS
from recollect.runtime.console import Console
from recollect.runtime.error_text import listed
from recollect.trajectories.field_names import NotATrajectory
from recollect.trajectories.parallel import in_order, workers_for
from recollect.trajectories.schema import Record
from recollect.trajectories.stream import FilePiece, files_of, records, units
from recollect.trajectories.unify import unify
from recollect.types import BadInput

SHOWN = 20  # problems that are printed one by one


@dataclass
class Converted:
    """The result of one unit: (file, id, unified record as JSON) in order, and (place, problem)."""

    rows: list[tuple[str, str, bytes]] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    unasked: int = 0  # rows whose source does not say what was asked
    size: int = 0


def convert_unit(unit: list[FilePiece], domain: str | None) -> Converted:
    """Convert the records of some pieces."""
    made = Converted(size=sum(size_of(p) for p in unit))
    for piece in unit:
        for found in records(piece):
            if found.wrong:
                made.problems.append((found.where, found.wrong))
                continue
            try:
                row = unify(found.value, domain, f"{stem_of(found.path)}-{found.place.rpartition(' ')[2]}")
                made.rows.append((found.path, row["task_id"], dumped(row)))
                made.unasked += not row["question"].strip()
            except NotATrajectory as error:
                made.problems.append((found.where, str(error)))
            except ValueError as error:  # half characters, which no JSON file can hold
                made.problems.append((found.where, f"it cannot be written as JSON: {error}"))
    return made


def dumped(row: Record) -> bytes:
    """A record as one line of JSON."""
    return to_json(row, inf_nan_mode="constants")


def size_of(piece: FilePiece) -> int:
    """The bytes of a piece."""
    return (piece.end if piece.end >= 0 else os.path.getsize(piece.path)) - piece.start


def stem_of(path: str) -> str:
    """A file's name without its endings."""
    name = Path(path).name
    for suffix in (".gz", ".zst", ".jsonl", ".ndjson", ".json", ".traj"):
        name = name.removesuffix(suffix)
    return name


class Ids:
    """Ids that are kept apart: one that was there already gets a number."""

    def __init__(self) -> None:
        self.seen: set[int] = set()
        self.times: Counter[str] = Counter()
        self.first: list[str] = []

    def place(self, name: str, row: bytes) -> bytes:
        """The row, with another id if its own is taken; the old one is then in its metadata."""
        if hash(name) not in self.seen:
            self.seen.add(hash(name))
            return row
        from pydantic_core import from_json

        record, number = from_json(row), self.times[name] + 2
        while hash(f"{name}#{number}") in self.seen:
            number += 1
        self.times[name] = number - 1
        self.first += [name] if len(self.first) < 3 and name not in self.first else []
        record["task_id"] = f"{name}#{number}"
        self.seen.add(hash(record["task_id"]))
        record["metadata"].setdefault("duplicate_of", name)
        return dumped(record)


class Output:
    """A new file of records, written beside its place and put there at the end: lines, or JSON."""

    def __init__(self, path: Path) -> None:
        self.path, self.lines = path, path.suffix in (".jsonl", ".ndjson")
        self.temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        self.file: BinaryIO | None = None
        self.count = 0
        self.held = b""  # the first record of a JSON file, which stands alone if it is the only one

    def write(self, row: bytes) -> None:
        """Add a record."""
        with writing(self.path):
            if self.file is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.file = self.temporary.open("wb")
            self.count += 1
            if self.lines:
                self.file.write(row + b"\n")
            elif self.count == 1:
                self.held = row
            else:
                self.file.write((b"[\n" + self.held if self.count == 2 else b"") + b",\n" + row)

    def close(self, keep: bool) -> None:
        """Put the file in its place, or drop it."""
        if self.file is None:
            return
        try:
            with writing(self.path):
                with self.file as file:
                    if keep and not self.lines:
                        file.write(self.held + b"\n" if self.count == 1 else b"\n]\n")
                    file.flush()
                    os.fsync(file.fileno())
                if keep:
                    os.replace(self.temporary, self.path)
        finally:
            self.temporary.unlink(missing_ok=True)


class Outputs:
    """One file for everything, or in a folder one for each file that is read."""

    def __init__(self, out: Path, sources: Sequence[Path], overwrite: bool) -> None:
        self.folder = out if out.is_dir() or not out.suffix else None
        (refuse_unwritable if self.folder else refuse_output)(out, f"--out {out}")
        targets = {str(s): self._target(s, sources) for s in sources} if self.folder else {str(s): out for s in sources}
        for source, target in targets.items():
            if target.exists() and target.resolve() == Path(source).resolve():
                raise BadInput(f"{target} would be written over itself; name another --out")
            if target.is_dir():
                raise BadInput(f"--out {target} is a folder")
            if target.exists() and not overwrite:
                raise BadInput(f"{target} is there already; name another --out, or give --overwrite")
        made = {target: Output(target) for target in targets.values()}
        self.of = {source: made[target] for source, target in targets.items()}

    def _target(self, source: Path, sources: Sequence[Path]) -> Path:
        assert self.folder is not None
        base = Path(os.path.commonpath([s.absolute().parent for s in sources]))
        suffix = ".json" if source.suffix in (".json", ".traj") else ".jsonl"
        target = self.folder / source.absolute().parent.relative_to(base) / (stem_of(str(source)) + suffix)
        clash = [
            s for s in sources if s != source and s.parent == source.parent and stem_of(str(s)) == stem_of(str(source))
        ]
        return target if not clash else target.with_name(f"{source.name}{suffix}")

    def all(self) -> list[Output]:
        return list(dict.fromkeys(self.of.values()))

    def close(self, keep: bool) -> None:
        for output in self.all():
            output.close(keep)


def converted(paths: Sequence[Path], domain: str | None, console: Console) -> Iterator[Converted]:
    """Every unit of some files, with progress."""
    size = sum(p.stat().st_size for p in paths)
    done = 0
    with console.progress("MB converted", max(1, size >> 20)) as advance:
        for made in in_order(partial(convert_unit, domain=domain), units(paths), workers_for(size)):
            yield made
            before, done = done, done + made.size
            if step := (done >> 20) - (before >> 20):
                advance("", step)


def check_domain(domain: str | None) -> None:
    """Refuse an unknown domain."""
    if domain is not None and domain not in DOMAINS:
        raise BadInput(f"the domain {domain} is unknown; known: {', '.join(DOMAINS)}")


def convert(given: Sequence[str], domain: str | None, out: Path, console: Console, overwrite: bool = False) -> int:
    """Convert everything to ``out``; returns how many records did not fit."""
    check_domain(domain)
    paths = files_of(given)
    outputs, ids, problems = Outputs(out.expanduser(), paths, overwrite), Ids(), FileProblems(console)
    count = unasked = 0
    complete = False
    try:
        for made in converted(paths, domain, console):
            for source, name, row in made.rows:
                outputs.of[source].write(ids.place(name, row))
            count, unasked = count + len(made.rows), unasked + made.unasked
            problems.add(made.problems)
        outputs.close(True)
        complete = True
    finally:
        if not complete:
            with suppress(BadInput):
                outputs.close(False)
    problems.end(count)
    if not count and not problems.count:
        raise BadInput(f"there are no trajectories in {listed(given)}")
    if ids.first:
        console.warn(
            f"{sum(ids.times.values())} records have the task_id of an earlier one ({', '.join(ids.first)}, …); they "
            "are kept with a number after it, and metadata.duplicate_of names it"
        )
    if unasked:
        console.warn(f"{unasked} of {count} trajectories nowhere say what was asked; their question is empty")
    written = [o.path for o in outputs.all() if o.count]
    console.say(f"{count} trajectories in {', '.join(map(str, written[:3])) or 'no file'}{' …' if written[3:] else ''}")
    return problems.count


class FileProblems:
    """Records that did not fit; the first ones are named."""

    def __init__(self, console: Console) -> None:
        self.console, self.count = console, 0
        self.first: list[str] = []

    def add(self, found: Sequence[tuple[str, str]]) -> None:
        """Note some."""
        self.count += len(found)
        self.first += [f"{where}: {what}" for where, what in found[: SHOWN - len(self.first)]]

    def end(self, good: int) -> None:
        """Name the first of them and say how many there were. If no record fitted, raise BadInput."""
        if self.count and not good:
            more = f"; {self.count - 1} more records do not fit either" if self.count > 1 else ""
            raise BadInput(f"{self.first[0]}{more}")
        for line in self.first:
            self.console.warn(line)
        if self.count > SHOWN:
            self.console.warn(f"… and {self.count - SHOWN} more")
        if self.count:
            self.console.warn(f"{self.count} of {good + self.count} records do not fit and were left out")
