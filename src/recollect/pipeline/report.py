"""The pipeline's report: report.json for programs, report.md and plots for people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recollect.eval.plots import PHASES, curve, success_bars
from recollect.pipeline.plan import Plan
from recollect.run import Run, dump, write_atomic


def write_report(plan: Plan, out: Path, records: dict[str, Any]) -> dict[str, Any]:
    """Write everything and return what report.json says."""
    found = records.get("evaluate", {}).get("made", {})
    domains = {domain: _row(found.get(domain, {})) for domain in plan.agents}
    report = {
        "domains": domains,
        "intervals": {d: {p: [r["low"], r["high"]] for p, r in rows.items()} for d, rows in found.items()},
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
    plots += _curves(out)
    write_atomic(out / "report.json", dump(report, indent=2) + "\n")
    write_atomic(out / "report.md", markdown(report, plots))
    return report


def _row(phases: dict[str, Any]) -> dict[str, Any]:
    rates = {p: phases[p]["accuracy"] if p in phases else None for p in PHASES}
    return {**rates, "n": phases["base"]["n"] if "base" in phases else 0}


def _sft(made: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if made is None else {k: made[k] for k in ("steps", "before", "after")}


def _curves(out: Path) -> list[str]:
    """The training curves that there are."""
    shown = []
    losses = [r for r in Run(out / "sft").metrics() if "sft/loss" in r]
    if losses:
        steps, values = [r["step"] for r in losses], [r["sft/loss"] for r in losses]
        curve(out / "plots" / "sft_loss.png", steps, values, ("update", "loss", "SFT"))
        shown.append("sft_loss")
    rewards = [r for r in Run(out / "rl").metrics() if "reward/mean" in r]
    if rewards:
        steps, values = [r["step"] for r in rewards], [r["reward/mean"] for r in rewards]
        curve(out / "plots" / "rl_reward.png", steps, values, ("step", "mean reward", "RL"))
        shown.append("rl_reward")
    return shown


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
    if report["sft"] and report["sft"]["after"]:
        before, after = report["sft"]["before"], report["sft"]["after"]
        lines += ["", "## SFT", "", "| held-out conversations | loss | token accuracy |", "|---|---|---|"]
        lines += [f"| before | {before['loss']:.3f} | {before['token_accuracy']:.3f} |"]
        lines += [f"| after {report['sft']['steps']} updates | {after['loss']:.3f} | {after['token_accuracy']:.3f} |"]
    lines += ["", "## Time", "", "| stage | seconds |", "|---|---|"]
    lines += [f"| {name} | {value:.1f} |" for name, value in report["seconds"].items()]
    lines += ["", *(f"![{name}](plots/{name}.png)" for name in plots), ""]
    return "\n".join(lines)
