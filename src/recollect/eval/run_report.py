"""The report of a run: report.json for programs, report.md and plots for people, a summary for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recollect.config import Config
from recollect.config.prompt_file import prompts_hash
from recollect.data.questions import questions_of
from recollect.domains.families import made_up
from recollect.eval import plots
from recollect.eval.phase_scores import PHASES, phase_differences, phase_means, signed
from recollect.eval.strips import save_strips
from recollect.files.output import write_atomic
from recollect.runs.directory import RunDirectory
from recollect.types import IMAGE_MARK, Group, Trajectory

SHOWN = 3  # trajectories in the report
MEMORIES = 16  # sections shown of each


def write_report(
    run: RunDirectory,
    cfg: Config,
    progress: Any,
    lengths: list[dict[str, float]],
    groups: Sequence[Group],
    validation: Mapping[str, float],
    name: str = "report",
    others: Mapping[str, Mapping[str, str]] | None = None,
    weights: str | None = None,
) -> dict[str, Any]:
    """Write report.json, report.md and the plots, and return what report.json says."""
    share = progress.sampled_tokens / progress.trained_tokens if progress.trained_tokens else None
    metric = cfg.trainer.best_metric
    known = progress.best is not None
    rows = [r for r in run.metrics() if "reward/mean" in r]
    report = {
        "held_out": progress.held_out,
        "metric": cfg.agent.reward_name,
        "phases": {name: found.row() for name, found in phase_means(progress.scores).items()},
        "differences": [found.row() for found in phase_differences(progress.scores)],
        "reward": {"first": rows[0]["reward/mean"], "last": rows[-1]["reward/mean"]} if rows else None,
        "by_length": lengths,
        "seconds": {k: round(v, 2) for k, v in progress.seconds.items()},
        "trained_tokens": progress.trained_tokens,
        "untrained_tokens": progress.untrained_tokens,
        "fixed_roles": {role: dict(found) for role, found in (others or {}).items()},
        **({"prompts_hash": prompts_hash(cfg)} if cfg.agent.prompts else {}),
        "weights_hash": weights,  # of the trained model, where roles are bound
        "fidelity": share,
        "steps": progress.step,
        "seed": cfg.trainer.seed,
        "validation": {k: v for k, v in validation.items() if k.startswith("val/")},
        "best": {"metric": metric, "value": progress.best, "step": progress.best_step} if known else None,
        "stopped": progress.stopped or None,
        "file": f"{name}.md",
    }
    plots_of = run.path / "plots" if name == "report" else None
    if plots_of and rows:
        plots.reward_curve(plots_of / "reward.png", [r["step"] for r in rows], [r["reward/mean"] for r in rows])
    if plots_of and any(v is not None for v in progress.held_out.values()):
        plots.held_out_bars(plots_of / "held_out.png", progress.held_out, phase_means(progress.scores))
    if plots_of and lengths:
        plots.length_curve(plots_of / "by_length.png", lengths, made_up(cfg).sections(cfg, 1))
    strips = save_strips(plots_of, examples(groups)) if plots_of else {}
    write_atomic(run.path / f"{name}.md", markdown(report, cfg, groups, bool(plots_of), strips))
    run.write_json(f"{name}.json", report)
    return report


def markdown(
    report: dict[str, Any],
    cfg: Config,
    groups: Sequence[Group],
    pictures: bool = True,
    strips: Mapping[str, str] | None = None,
) -> str:
    """The report for people. ``strips`` are the pictures of attempts that were shown images, by task."""
    model = cfg.actor_rollout_ref.model.path
    out = [f"# {cfg.trainer.project_name} / {cfg.trainer.experiment_name}", ""]
    out += [
        f"Model `{model}`, agent `{cfg.agent.agent_type}`, {report['steps']} RL steps, seed {report['seed']}.",
        "",
    ]
    out += ["## Held-out success", "", f"The mean of `{report['metric']}` over tasks that are not trained on.", ""]
    out += ["| phase | success | 95 % interval | tasks |", "|---|---|---|---|"]
    out += [f"| {' | '.join(row)} |" for row in phase_rows(report)]
    if report["differences"]:
        out += ["", "| on the same tasks | difference | 95 % interval | tasks |", "|---|---|---|---|"]
        out += [f"| {' | '.join(row)} |" for row in difference_rows(report)]
    out += ["", "![held-out success](plots/held_out.png)" if pictures else "", ""]
    if report["best"]:
        best = report["best"]
        out += [f"Best `{best['metric']}`: {best['value']:.4g} at step {best['step']}, kept as `checkpoints/best`.", ""]
    if report["stopped"]:
        out += [f"Stopped early: {report['stopped']}.", ""]
    out += _validation(report["validation"])
    if report["reward"]:
        out += ["## Reward", "", f"{sampled_reward(report)}.", ""]
        out += ["![reward](plots/reward.png)", ""] if pictures else []
    if report["by_length"]:
        out += [
            "## By document length",
            "",
            "| × training length | sections | success | 95 % interval | documents |",
            "|---|---|---|---|---|",
        ]
        out += [
            f"| {r['multiple']} | {r['chunks']} | {r['accuracy']:.3f} | {r['low']:.3f} – {r['high']:.3f} | {r['n']} |"
            for r in report["by_length"]
        ]
        out += ["", "![by length](plots/by_length.png)", ""]
    times = ", ".join(f"{k} {v:.0f} s" for k, v in report["seconds"].items())
    out += ["## Cost", "", f"{times}; {report['trained_tokens']:,} trained tokens.", ""]
    if report["fidelity"] is not None:
        out += [
            f"{100 * report['fidelity']:.4g} % of trained tokens are the very ids that the policy sampled.",
            "",
        ]
    shown = examples(groups)
    if shown:
        out += ["## Three trajectories", ""]
        for group in shown:
            out += _trajectory(group, (strips or {}).get(group.task.id))
    return "\n".join(out)


def phase_rows(report: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Phase, mean, interval and tasks, as texts."""
    rows = []
    for key, name in PHASES.items():
        if (found := report.get("phases", {}).get(name)) is not None:
            interval = f"{found['low']:.3f} – {found['high']:.3f}"
            rows.append((name, f"{found['accuracy']:.3f}", interval, f"{found['n']:,}"))
        elif (mean := report["held_out"].get(key)) is not None:  # of a run that an earlier version began
            rows.append((name, f"{mean:.3f}", "", ""))
    return rows


def difference_rows(report: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """What was compared, the difference, its paired interval and tasks, as texts."""
    return [
        (found["what"], f"{found['difference']:+.3f}", signed(found["low"], found["high"]), f"{found['n']:,}")
        for found in report.get("differences", ())
    ]


def sampled_reward(report: Mapping[str, Any]) -> str:
    """The mean reward of sampled attempts at training tasks, in the first and in the last step."""
    reward = report["reward"]
    return f"mean reward of sampled attempts: {reward['first']:.3f} in the first step, {reward['last']:.3f} in the last"


def _validation(row: Mapping[str, float]) -> list[str]:
    """A table of the scores from several samples per task."""
    names = [k for k in row if "@" in k and not k.endswith(("/low", "/high", "@1"))]
    if not names:
        return []
    out = ["## Validation", "", "| metric | value | 95 % interval |", "|---|---|---|"]
    out += [f"| {k} | {row[k]:.3f} | {row[f'{k}/low']:.3f} – {row[f'{k}/high']:.3f} |" for k in names]
    return [*out, ""]


def examples(groups: Sequence[Group]) -> list[Group]:
    """Some attempts to look at: of different lengths, a failed one among them if there is one."""
    valid = [g for g in groups if g.trajectories and g.trajectories[0].valid]
    wrong = [g for g in valid if g.trajectories[0].reward < 1]
    right = [g for g in valid if g.trajectories[0].reward >= 1]
    spread = right[:: max(1, len(right) // SHOWN)]
    return [*spread[: SHOWN - bool(wrong)], *wrong[:SHOWN]][:SHOWN]


def _trajectory(group: Group, strip: str | None = None) -> list[str]:
    t = group.trajectories[0]
    verdict = "right" if t.reward >= 1 else "wrong"
    picture = [f"![what it was shown and did](plots/{strip})", ""] if strip else []
    if len(t.answers) > 1:
        out = [f"### {group.task.id}: {t.reward:.2f}", "", "| question | expected | it said |", "|---|---|---|"]
        pairs = zip(questions_of(group.task), t.answers, strict=True)
        out += [f"| {_cell(q.text)} | {_cell(' or '.join(q.answers))} | {_cell(said)} |" for q, said in pairs]
        return [*out, "", *picture, *_notes(t)]
    expected = f"Expected {' or '.join(group.task.answers)}; it said `{t.answer.strip()}`"
    ended = expected if any(group.task.answers) else f"It ended with `{t.stop}` after {len(t.turns)} turns"
    question = group.task.question.replace(IMAGE_MARK, "").strip()
    return [f"### {question}", "", f"{ended}: {verdict}.", "", *picture, *_notes(t)]


def _notes(t: Trajectory) -> list[str]:
    """What an attempt noted: the actions of one that acts, the memory of one that reads."""
    if not t.notes:
        return []
    rows = [f"| {i} | {note} |" for i, note in _shortened(t.notes)]
    return ["| step | what it did |" if t.actions else "| section | memory after it |", "|---|---|", *rows, ""]


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _shortened(notes: Sequence[str]) -> list[tuple[str, str]]:
    """At most MEMORIES rows; runs of the same memory become one row."""
    rows: list[tuple[int, int, str]] = []
    for i, note in enumerate(notes, 1):
        if rows and rows[-1][2] == note:
            rows[-1] = (rows[-1][0], i, note)
        else:
            rows.append((i, i, note))
    shown = [(f"{a}" if a == b else f"{a}–{b}", note.replace("|", "\\|").replace("\n", "<br>")) for a, b, note in rows]
    if len(shown) > MEMORIES:
        half = MEMORIES // 2
        shown = [*shown[:half], ("…", f"({len(shown) - MEMORIES} more)"), *shown[-half:]]
    return shown
