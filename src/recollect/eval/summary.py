"""The report in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from recollect.eval.run_report import difference_rows, phase_rows, sampled_reward
from recollect.runs.directory import RunDirectory
from recollect.runtime.console import Console


def show_report(report: dict[str, Any], run: RunDirectory, console: Console) -> None:
    """Print what matters of a report, and where the rest is."""
    console.say()
    what = [report["metric"]] if "metric" in report else []  # earlier versions did not write it
    what += ["never-seen names and values"] if report["by_length"] else []
    title = f"Held-out success ({', '.join(what)})" if what else "Held-out success"
    table = _table(title, ("phase", "success", "95 % interval", "tasks"), phase_rows(report))
    if table.row_count:
        console.show(table)
    if rows := difference_rows(report):
        console.show(
            _table("What the phases gave", ("on the same tasks", "difference", "95 % interval", "tasks"), rows)
        )
    if report["by_length"]:
        console.show(length_table(report["by_length"]))
    if report.get("reward"):
        console.say(sampled_reward(report))
    seconds = report["seconds"]
    console.say(
        f"{seconds['total']:.0f} s in all: rollout {seconds['rollout']:.0f}, update {seconds['update']:.0f}, "
        f"SFT {seconds['sft']:.0f}, evaluation {seconds['eval']:.0f}"
    )
    if report["fidelity"] is not None:
        share = 100 * report["fidelity"]
        console.say(
            f"{report['trained_tokens']:,} trained tokens, {share:.4g} % of them the very ids that were sampled"
        )
    if report.get("best"):
        best = report["best"]
        place = run.path / "checkpoints" / "best"
        console.say(f"best {best['metric']}: {best['value']:.4g} at step {best['step']}, kept as {place}")
    if report.get("stopped"):
        console.say(f"stopped early: {report['stopped']}")
    plots = "" if report.get("file") == "validation.md" else f"   plots: {run.path / 'plots'}"
    console.say(f"report: {run.path / report.get('file', 'report.md')}{plots}")


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title=title)
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*row)
    return table


def length_table(rows: list[dict[str, float]]) -> Table:
    """Accuracy by document length."""
    table = Table(title="By document length")
    for column in ("× training length", "sections", "success", "95 % interval", "documents"):
        table.add_column(column, justify="right")
    for r in rows:
        interval = f"{r['low']:.3f} – {r['high']:.3f}"
        table.add_row(f"{r['multiple']}", f"{r['chunks']}", f"{r['accuracy']:.3f}", interval, f"{r['n']}")
    return table
