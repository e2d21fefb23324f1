"""`recollect reward`: the reward of every trajectory of some files, in parallel, and statistics."""

from __future__ import annotations

import os
import shutil
import tempfile
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic_core import to_json

from recollect.files.output import refuse_output, writing
from recollect.rewards.trajectory_total import calculator
from recollect.runtime.console import Console
from recollect.runtime.error_text import listed
from recollect.trajectories.field_names import NotATrajectory
from recollect.trajectories.parallel import in_order, workers_for
from recollect.trajectories.stream import FilePiece, files_of, records, units
from recollect.trajectories.unify import unify
from recollect.types import BadInput
from recollect.workflows.trajectories.convert import FileProblems, check_domain, size_of, stem_of

NAMES = ("total", "completion", "efficiency", "quality", "reasoning", "conciseness", "tool_selection")


@dataclass
class Scored:
    """The rewards of a unit's trajectories, and what could not be read."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    size: int = 0


def score_unit(unit: list[FilePiece], domain: str | None, weights: str | None) -> Scored:
    """Score the records of some pieces."""
    made = Scored(size=sum(map(size_of, unit)))
    rewards = calculator(weights)
    for piece in unit:
        for found in records(piece):
            try:
                if found.wrong:
                    raise NotATrajectory(found.wrong)
                record = unify(found.value, domain, f"{stem_of(found.path)}-{found.place.rpartition(' ')[2]}")
                parts = rewards.calculate_reward(record)
            except NotATrajectory as error:
                made.problems.append((found.where, str(error)))
                continue
            where = {"file": found.path, "place": found.place, "task_id": record["task_id"], "domain": record["domain"]}
            made.rows.append({**where, "success": record["success"], **{k: round(v, 6) for k, v in parts.items()}})
    return made


def scored(paths: Sequence[Path], domain: str | None, weights: str | None, console: Console) -> Iterator[Scored]:
    """Every unit of some files, with progress."""
    size = sum(p.stat().st_size for p in paths)
    work = partial(score_unit, domain=domain, weights=weights)
    many = max(workers_for(size), workers_for(8 << 20) if len(paths) > 1000 else 0)
    done = 0
    with console.progress("MB scored", max(1, size >> 20)) as advance:
        for made in in_order(work, units(paths), many):
            yield made
            before, done = done, done + made.size
            if step := (done >> 20) - (before >> 20):
                advance("", step)


def reward(
    given: Sequence[str],
    console: Console,
    output: Path | None = None,
    domain: str | None = None,
    weights: str | None = None,
    min_reward: float | None = None,
    overwrite: bool = False,
) -> tuple[dict[str, Any], int]:
    """(the statistics, how many records could not be scored). ``output`` lists those that reach ``min_reward``."""
    check_domain(domain)
    calculator(weights)  # bad weights are refused before anything is read
    if output is not None and output.exists() and not overwrite:
        raise BadInput(f"{output} is there already; name another --output, or give --overwrite")
    if output is not None:
        refuse_output(output, f"--output {output}")
    paths, problems = files_of(given), FileProblems(console)
    tally, listing = ScoreSummary(), Listing(output)
    try:
        for made in scored(paths, domain, weights, console):
            for row in made.rows:
                tally.add(row)
                if min_reward is None or row["total"] >= min_reward:
                    listing.add(row)
            problems.add(made.problems)
        problems.end(tally.count)
        if not tally.count and not problems.count:
            raise BadInput(f"there are no trajectories in {listed(given)}")
        analysis: dict[str, Any] = {
            "files": len(paths),
            "scored": tally.count,
            "problems": problems.count,
            "min_reward": min_reward,
            "kept": listing.count,
            "statistics": tally.statistics(),
        }
        listing.finish(analysis)
    finally:
        listing.close()
    if output is not None:
        console.say(f"{listing.count} of {tally.count} trajectories in {output}")
    return analysis, problems.count


class Listing:
    """The rows of an analysis, on disk until it is written; memory does not grow with them."""

    def __init__(self, output: Path | None) -> None:
        self.output, self.count = output, 0
        self.file = tempfile.TemporaryFile() if output is not None else None  # noqa: SIM115  (closed by close)

    def add(self, row: Mapping[str, Any]) -> None:
        """List a row."""
        if self.file is not None:
            with writing(Path(tempfile.gettempdir())):
                self.file.write((b",\n" if self.count else b"") + to_json(row))
        self.count += 1

    def finish(self, analysis: Mapping[str, Any]) -> None:
        """Write the analysis with its rows."""
        if self.output is None or self.file is None:
            return
        self.output.parent.mkdir(parents=True, exist_ok=True)
        part = self.output.with_name(f".{self.output.name}.tmp")
        self.file.seek(0)
        try:
            with writing(self.output):
                with part.open("wb") as out:
                    out.write(to_json(analysis, indent=2)[:-2] + b',\n  "trajectories": [\n')
                    shutil.copyfileobj(self.file, out)
                    out.write(b"\n  ]\n}\n")
                os.replace(part, self.output)
        finally:
            part.unlink(missing_ok=True)

    def close(self) -> None:
        """Drop the rows."""
        if self.file is not None:
            with suppress(OSError):  # a full disk was told before
                self.file.close()


class ScoreSummary:
    """The numbers of all rows, by domain."""

    def __init__(self) -> None:
        self.values: dict[str, array[float]] = {}
        self.verdicts: dict[str, list[int]] = {}  # checked, of them successful
        self.count = 0

    def add(self, row: Mapping[str, Any]) -> None:
        """Count a row."""
        self.count += 1
        for name in ("all", row["domain"]):
            self.values.setdefault(name, array("d")).extend(row[part] for part in NAMES)
            known = self.verdicts.setdefault(name, [0, 0])
            known[0] += row["success"] is not None
            known[1] += row["success"] is True

    def statistics(self) -> dict[str, Any]:
        """Count, share of successes, and the spread of every part, of all and of each domain."""
        found: dict[str, Any] = {}
        for name, numbers in self.values.items():
            table = np.frombuffer(numbers, np.float64).reshape(-1, len(NAMES))
            checked, good = self.verdicts[name]
            spread = {part: _spread(table[:, i]) for i, part in enumerate(NAMES)}
            rate = good / checked if checked else None
            found[name] = {"n": len(table), "checked": checked, "success_rate": rate, **spread}
        return found


def _spread(values: np.ndarray) -> dict[str, float]:
    found = {"mean": values.mean(), "median": np.median(values), "min": values.min(), "max": values.max()}
    return {k: round(float(v), 6) for k, v in found.items()}


def show_statistics(analysis: Mapping[str, Any], console: Console) -> None:
    """A table of means by domain."""
    rows = [
        [name, str(s["n"]), "–" if s["success_rate"] is None else f"{s['success_rate']:.3f}"]
        + [f"{s[part]['mean']:.3f}" if s["n"] else "–" for part in NAMES]
        for name, s in analysis["statistics"].items()
    ]
    console.table("mean rewards", ["domain", "n", "success", *NAMES], rows)
