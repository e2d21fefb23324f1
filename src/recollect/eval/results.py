"""An evaluation's results: numbers with intervals per source and per length, as JSON and as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from recollect.eval.accuracy import Accuracy, of_scores
from recollect.eval.by_category import by_category, category_table
from recollect.eval.items import METRICS, Item
from recollect.eval.length import by_length
from recollect.eval.many_samples import said

Tries = list[Item]  # the attempts at one task


def summary(tasks: Sequence[Tries]) -> dict[str, Any]:
    """Rates with 95 % intervals over tasks: the reward, EM, F1, sub-EM, and with several samples best and majority."""
    found: dict[str, Accuracy] = {"accuracy": of_scores([_mean(t, lambda i: i.reward) for t in tasks])}
    for name in METRICS:
        found[name] = of_scores([_mean(t, lambda i, name=name: i.scores[name]) for t in tasks])  # type: ignore[misc]
    n = max((len(t) for t in tasks), default=1)
    if n > 1:
        found[f"best@{n}"] = of_scores([max((i.reward for i in t if not i.failure), default=0.0) for t in tasks])
        found[f"maj@{n}"] = of_scores([_majority(t) for t in tasks])
    failures = sum(bool(i.failure) for t in tasks for i in t)
    return {**{name: value.row() for name, value in found.items()}, "failures": failures}


def tables(tasks: Sequence[Tries], trained: int) -> dict[str, Any]:
    """Everything about one agent: over all, per source, per length. ``trained``: the length trained on, 0 unknown."""
    sources: dict[str, list[Tries]] = {}
    for task in tasks:
        sources.setdefault(task[0].source, []).append(task)
    lengths = by_length(list(tasks), [t[0].length for t in tasks])
    rows = []
    for length, part in lengths.items():
        made = summary(part)
        multiple = {"multiple": length // trained} if trained else {}
        rows.append({**multiple, "chunks": length, **made["accuracy"], **{m: made[m] for m in METRICS}})
    made = {"all": summary(tasks), "sources": {s: summary(part) for s, part in sources.items()}, "by_length": rows}
    categories = by_category([item.questions for task in tasks for item in task])
    return {**made, "categories": categories} if categories else made


def markdown(result: dict[str, Any]) -> str:
    """The results for people."""
    out = [f"# Evaluation of {result['checkpoint']}", ""]
    for agent, found in result["agents"].items():
        out += [f"## {agent}", "", "| source | metric | value | 95 % interval | tasks |", "|---|---|---|---|---|"]
        for source, made in found["sources"].items():
            rows = [(name, row) for name, row in made.items() if isinstance(row, dict)]
            out += [f"| {source} | {name} | {_cells(row)} |" for name, row in rows]
        out += ["", f"Failed attempts, counted as 0: {found['all']['failures']}.", ""]
        if "categories" in found:
            out += [*category_table(found["categories"]), ""]
        if len(found["by_length"]) > 1:
            out += [f"| {result['length_of']} | success | 95 % interval | tasks | EM | F1 | sub-EM |"]
            out += ["|---|---|---|---|---|---|---|"]
            for row in found["by_length"]:
                metrics = " | ".join(f"{row[m]['accuracy']:.3f}" for m in METRICS)
                out += [f"| {row['chunks']} | {_cells(row)} | {metrics} |"]
            out += [""]
    if result.get("plot"):
        out += [f"![accuracy by length]({result['plot']})", ""]
    return "\n".join(out)


def _cells(row: dict[str, Any]) -> str:
    return f"{row['accuracy']:.3f} | {row['low']:.3f} – {row['high']:.3f} | {row['n']}"


def _mean(tries: Tries, score: Callable[[Item], float]) -> float:
    return sum(map(score, tries)) / max(1, len(tries))


def _majority(tries: Tries) -> float:
    """The mean reward of the attempts that gave the most common answer; of equally common ones, the first given."""
    votes: dict[str, list[float]] = {}
    for item in tries:
        if not item.failure:
            votes.setdefault(said(item.answer), []).append(item.reward)
    most = max(votes.values(), key=len, default=[0.0])
    return sum(most) / len(most)
