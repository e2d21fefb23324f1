"""`recollect reward`: the reward of every trajectory of some files, side by side, and what they are like together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from statistics import mean, median
from typing import Any

from pydantic_core import to_json

from recollect.console import Console
from recollect.rewards.calculator import RewardCalculator
from recollect.run import write_atomic
from recollect.trajectories.convert import Problems, check_domain, size_of, stem_of
from recollect.trajectories.keys import NotATrajectory
from recollect.trajectories.stream import Piece, files_of, records, units
from recollect.trajectories.unify import unify
from recollect.trajectories.work import in_order, workers_for
from recollect.types import BadInput

NAMES = ("total", "completion", "efficiency", "quality", "reasoning", "conciseness", "tool_selection")


@dataclass
class Scored:
    """The rewards of a unit's trajectories, and what could not be read."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    size: int = 0


@lru_cache(maxsize=4)
def calculator(weights: str | None) -> RewardCalculator:
    """One calculator for all pieces of a process."""
    return RewardCalculator(weights)


def score_unit(unit: list[Piece], domain: str | None, weights: str | None) -> Scored:
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
    """(the analysis, how many records could not be scored). ``min_reward`` keeps those that reach it."""
    check_domain(domain)
    calculator(weights)  # bad weights are refused before anything is read
    if output is not None and output.exists() and not overwrite:
        raise BadInput(f"{output} is there already; name another --output, or give --overwrite")
    paths, problems = files_of(given), Problems(console)
    rows: list[dict[str, Any]] = []
    for made in scored(paths, domain, weights, console):
        rows += made.rows
        problems.add(made.problems)
    problems.end(len(rows))
    if not rows and not problems.count:
        raise BadInput(f"there are no trajectories in {', '.join(given)}")
    kept = [r for r in rows if min_reward is None or r["total"] >= min_reward]
    analysis: dict[str, Any] = {
        "files": len(paths),
        "scored": len(rows),
        "problems": problems.count,
        "min_reward": min_reward,
        "kept": len(kept),
        "statistics": {"all": statistics(rows), **by_domain(rows)},
        "trajectories": kept,
    }
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(output, to_json(analysis, indent=2) + b"\n")
        console.say(f"{len(kept)} of {len(rows)} trajectories in {output}")
    return analysis, problems.count


def by_domain(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Statistics of each domain that occurs."""
    names = dict.fromkeys(r["domain"] for r in rows)
    return {name: statistics([r for r in rows if r["domain"] == name]) for name in names}


def statistics(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Count, share of successes, and the spread of every part."""
    known = [r["success"] for r in rows if r["success"] is not None]
    spread = {name: _spread([r[name] for r in rows]) for name in NAMES} if rows else {}
    return {"n": len(rows), "checked": len(known), "success_rate": mean(known) if known else None, **spread}


def _spread(values: Sequence[float]) -> dict[str, float]:
    found = {"mean": mean(values), "median": median(values), "min": min(values), "max": max(values)}
    return {k: round(v, 6) for k, v in found.items()}


def show_statistics(analysis: Mapping[str, Any], console: Console) -> None:
    """A table of means by domain."""
    rows = [
        [name, str(s["n"]), "–" if s["success_rate"] is None else f"{s['success_rate']:.3f}"]
        + [f"{s[part]['mean']:.3f}" if s["n"] else "–" for part in NAMES]
        for name, s in analysis["statistics"].items()
    ]
    console.table("mean rewards", ["domain", "n", "success", *NAMES], rows)
