"""The report of all stages: report.json for programs, report.md and a picture for people."""

from __future__ import annotations

from typing import Any

from recollect.eval.plots import stage_bars
from recollect.files.output import write_atomic
from recollect.runs.directory import dump
from recollect.runtime.console import Console
from recollect.workflows.stages.stage_plan import StagePlan

PICTURE = "stages.png"


def write_report(plan: StagePlan, report: dict[str, Any], seconds: float, console: Console) -> dict[str, Any]:
    """Write the files, show the table, and return what report.json says."""
    report["seconds"] = round(seconds, 1)
    table = rows(report)
    shown = [(name, value) for name, _, _, value, *_ in table if value is not None]
    stage_bars(plan.root / PICTURE, [name for name, _ in shown], [float(value) for _, value in shown])
    write_atomic(plan.root / "report.md", markdown(plan, report))
    write_atomic(plan.root / "report.json", dump(report, indent=2) + "\n")
    header = ("", "trains", "updates", "held-out success", "95 %", "trained tokens", "untrained tokens")
    console.table("Held-out success after each stage", header, [_cells(row) for row in table])
    console.say(f"report: {plan.root / 'report.md'}")
    return report


StageRow = tuple[str, str, int, float | None, float | None, float | None, int, int]


def rows(report: dict[str, Any]) -> list[StageRow]:
    """(name, trained role, updates so far, success, interval, tokens) of the base, every stage and the comparison."""
    made: list[StageRow] = [("base", "–", 0, report["base"], report["base_low"], report["base_high"], 0, 0)]
    done = 0
    for stage in report["stages"]:
        done += stage["steps"]
        made.append(_row(f"after {stage['name']}", stage, done))
    if report["end_to_end"]:
        made.append(_row("end to end", report["end_to_end"], report["end_to_end"]["steps"]))
    return made


def _row(name: str, stage: dict[str, Any], done: int) -> StageRow:
    tokens = stage["trained_tokens"], stage["untrained_tokens"]
    return (name, stage["role"], done, stage["held_out"], stage["low"], stage["high"], *tokens)


def _cells(row: StageRow) -> list[str]:
    name, role, done, value, low, high, trained, untrained = row
    between = "" if low is None or high is None else f"{low:.3f} – {high:.3f}"
    return [name, role, str(done), "–" if value is None else f"{value:.3f}", between, f"{trained:,}", f"{untrained:,}"]


def markdown(plan: StagePlan, report: dict[str, Any]) -> str:
    """The report for people."""
    trainer = plan.cfg.trainer
    out = [f"# {trainer.project_name} / {trainer.experiment_name}: {len(report['stages'])} stages", ""]
    out += [f"Every role starts from `{report['base_model']}`, seed {report['seed']}, {report['seconds']:.0f} s.", ""]
    out += ["| | trains | updates so far | held-out success | 95 % interval | trained tokens | untrained tokens |"]
    out += ["|---|---|---|---|---|---|---|"]
    out += [f"| {' | '.join(_cells(row))} |" for row in rows(report)]
    out += ["", f"![held-out success]({PICTURE})", "", "## Which weights trained against which", ""]
    out += ["| stage | trained | from | against | became |", "|---|---|---|---|---|"]
    for line in report["lineage"]:
        against = ", ".join(f"{role} {_short(found)}" for role, found in line["against"].items()) or "–"
        trained = ", ".join(line["trained"])
        out += [f"| {line['stage']} | {trained} | {_short(line['from'])} | {against} | {_short(line['became'])} |"]
    out += [
        "",
        "A model is written with the first digits of the digest of its weights; `lineage.json` has all of them.",
    ]
    return "\n".join([*out, ""])


def _short(found: dict[str, Any]) -> str:
    return f"`{found['model']}`" + (f" ({found['hash'][:10]})" if found.get("hash") else "")
