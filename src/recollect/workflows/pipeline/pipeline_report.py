"""The pipeline's report: report.json for programs, report.md and plots for people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recollect.eval.plots import PHASES, curve, success_bars
from recollect.files.output import write_atomic
from recollect.runs.directory import RunDirectory, dump
from recollect.workflows.pipeline.paths import Place
from recollect.workflows.pipeline.pipeline_plan import Plan


def write_report(plan: Plan, out: Path, records: dict[str, Any]) -> dict[str, Any]:
    """Write everything and return what report.json says."""
    found = records.get("evaluate", {}).get("made", {})
    domains = {domain: _row(found.get(domain, {})) for domain in found or plan.agents}
    report = {
        "domains": domains,
        "intervals": {d: {p: [r["low"], r["high"]] for p, r in rows.items()} for d, rows in found.items()},
        "metrics": {d: {p: _more(r) for p, r in rows.items()} for d, rows in found.items() if _more(rows["base"])},
        "rewards": records.get("reward", {}).get("made", {}).get("mean", {}),
        "sft": _sft(records.get("sft", {}).get("made")),
        "seconds": {name: record["seconds"] for name, record in records.items()},
        "model": plan.model,
    }
    (out / "plots").mkdir(exist_ok=True)
    plots = []
    if any(row["base"] is not None for row in domains.values()):
        success_bars(out / "plots" / "success.png", found)
        plots.append("success")
    plots += _curves(out, Place.of(plan))
    write_atomic(out / "report.json", dump(report, indent=2) + "\n")
    write_atomic(out / "report.md", markdown(report, plots))
    return report


def _more(row: dict[str, Any]) -> dict[str, float]:
    """The metrics besides success."""
    return {name: row[name] for name in ("reward", "efficiency") if name in row}


def _row(phases: dict[str, Any]) -> dict[str, Any]:
    rates = {p: phases[p]["accuracy"] if p in phases else None for p in PHASES}
    return {**rates, "n": phases["base"]["n"] if "base" in phases else 0}


def _sft(made: dict[str, Any] | None) -> dict[str, Any] | None:
    if made is not None and "tools" in made:
        return {tool: _sft(row) for tool, row in made["tools"].items()}
    return None if made is None else {k: made[k] for k in ("steps", "before", "after")}


def _curves(out: Path, place: Place) -> list[str]:
    """The training curves of the stages that were run."""
    shown = []
    losses = [r for r in RunDirectory(place.acting_model().parent).metrics() if "sft/loss" in r]
    if losses:
        steps, values = [r["step"] for r in losses], [r["sft/loss"] for r in losses]
        curve(out / "plots" / "sft_loss.png", steps, values, ("update", "loss", "SFT"))
        shown.append("sft_loss")
    rewards = [r for r in RunDirectory(place.rl).metrics() if "reward/mean" in r]
    if rewards:
        steps, values = [r["step"] for r in rewards], [r["reward/mean"] for r in rewards]
        curve(out / "plots" / "rl_reward.png", steps, values, ("step", "mean reward", "RL"))
        shown.append("rl_reward")
    return shown


def _sft_lines(found: dict[str, Any] | None) -> list[str]:
    """Loss and accuracy before and after SFT; of each tool where a tool has a model of its own."""
    models = {} if found is None else {"": found} if "after" in found else found
    lines = []
    for tool, row in models.items():
        for when in ("before", "after"):
            if (row or {}).get(when):
                name = f"{tool} {when}".strip() + (f" {row['steps']} updates" if when == "after" else "")
                lines.append(f"| {name} | {row[when]['loss']:.3f} | {row[when]['token_accuracy']:.3f} |")
    header = ["", "## SFT", "", "| held-out conversations | loss | token accuracy |", "|---|---|---|"]
    return [*header, *lines] if lines else []


def markdown(report: dict[str, Any], plots: list[str]) -> str:
    """The report for people."""
    shown = lambda value: "–" if value is None else f"{value:.3f}"
    lines = ["# Pipeline", "", f"Model: `{report['model']}`", "", "## Success on held-out tasks", ""]
    lines += ["| domain | base | SFT | RL | tasks |", "|---|---|---|---|---|"]
    for domain, row in report["domains"].items():
        lines.append(f"| {domain} | {shown(row['base'])} | {shown(row['sft'])} | {shown(row['rl'])} | {row['n']} |")
    if report["rewards"]:
        lines += ["", "## Rewards of the generated trajectories", "", "| domain | mean |", "|---|---|"]
        lines += [f"| {d} | {v:.3f} |" for d, v in report["rewards"].items()]
    lines += _sft_lines(report["sft"])
    lines += ["", "## Time", "", "| stage | seconds |", "|---|---|"]
    lines += [f"| {name} | {value:.1f} |" for name, value in report["seconds"].items()]
    lines += ["", *(f"![{name}](plots/{name}.png)" for name in plots), ""]
    return "\n".join(lines)
