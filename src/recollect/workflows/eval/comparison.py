"""`recollect compare`: evaluations of the same items beside each other, with paired intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recollect.eval.by_category import CATEGORY_METRICS
from recollect.eval.items import METRICS, Item, read_items
from recollect.eval.paired import (
    PairedDifference,
    across_lengths,
    between,
    between_categories,
    item_scores,
    question_values,
)
from recollect.files.reading import read_json
from recollect.runtime.console import Console
from recollect.types import BadInput

HEADER = ("", "first", "second", "second − first", "95 %", "items")


Agents = tuple[str | None, str | None]  # of the first and the second results; None: the evaluated one


def compare(first: str, second: str | None, metric: str, agents: Agents, console: Console) -> dict[str, Any]:
    """Show and return the differences: of two results, or within one between lengths and between agents."""
    rows = _two(first, second, metric, agents) if second else _within(first, metric, agents[0])
    if not rows:
        raise BadInput(f"{first} and {second or 'itself'} have no items to pair: evaluate both on the same data")
    console.table(f"Paired differences, {metric}", HEADER, [_cells(row) for row in rows])
    return {"metric": metric, "first": first, "second": second, "rows": [row.row() for row in rows]}


def _two(first: str, second: str, metric: str, agents: Agents) -> list[PairedDifference]:
    if metric in CATEGORY_METRICS:
        x, y = (question_values(items_of(name, who), metric) for name, who in zip((first, second), agents, strict=True))
        return between_categories(x, y)
    a, b = (_scores(name, agent, metric) for name, agent in zip((first, second), agents, strict=True))
    return between(a, b)


def _within(name: str, metric: str, agent: str | None) -> list[PairedDifference]:
    known = agents_of(name)
    own = agent or known[0]
    mine = _scores(name, own, metric)
    rows = across_lengths(mine)
    for other in (each for each in known if each != own):
        found = between(mine, _scores(name, other, metric))
        rows += [PairedDifference(f"{other} − {own}, {row.what}", *list(row.row().values())[1:]) for row in found]
    return rows


def _scores(name: str, agent: str | None, metric: str) -> dict[tuple[str, int], float]:
    items = items_of(name, agent)
    if without := [item.id for item in items if metric in METRICS and metric not in item.scores]:
        raise BadInput(f"{name}: the item {without[0][:60]!r} has no {metric}; evaluate again")
    return item_scores(items, metric)


def agents_of(name: str) -> list[str]:
    """The agents of some results, the evaluated one first."""
    found = read_json(_place(name, ".json"))
    agents = found.get("agents") if isinstance(found, dict) else None
    if not isinstance(agents, dict) or not agents:
        raise BadInput(f"{name} holds no results of `recollect eval`")
    return list(agents)


def items_of(name: str, agent: str | None) -> list[Item]:
    """The items of one agent of some results; by default those of the evaluated agent."""
    known = agents_of(name)
    if agent is not None and agent not in known:
        raise BadInput(f"{name} has no agent {agent}; it has {', '.join(known)}")
    return read_items(_place(name, ".items"), agent or known[0])


def _place(name: str, suffix: str) -> Path:
    path = Path(name.removesuffix(".json")).expanduser()
    path = path.with_name(f"{path.name}{suffix}")
    if not path.exists():
        raise BadInput(f"no results at {path}: name what `recollect eval … --out NAME` wrote")
    return path


def _cells(row: PairedDifference) -> list[str]:
    return [
        row.what,
        f"{row.first:.3f}",
        f"{row.second:.3f}",
        f"{row.difference:+.3f}",
        f"{row.low:+.3f} – {row.high:+.3f}",
        f"{row.n:,}",
    ]
