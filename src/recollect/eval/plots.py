"""The plots of reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recollect.eval.accuracy import Accuracy
from recollect.eval.phase_scores import PHASES

INK, BLUE, GREY, ORANGE = "#222222", "#2563eb", "#9ca3af", "#ea580c"
COLOURS = {"base": GREY, "sft": ORANGE, "rl": BLUE}  # of phases


def _figure(width: float = 6.4, height: float = 3.6) -> tuple[Any, Any]:
    from matplotlib.figure import Figure  # not pyplot: a notebook keeps its own way of showing figures

    figure = Figure(figsize=(width, height), dpi=130, layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e5e7eb", linewidth=0.8)
    axes.set_axisbelow(True)
    return figure, axes


def reward_curve(path: Path, steps: Sequence[int], rewards: Sequence[float]) -> None:
    """Mean reward per step, with a running mean."""
    figure, axes = _figure()
    axes.plot(steps, rewards, color=GREY, linewidth=1, label="step")
    running, value = [], rewards[0]
    for reward in rewards:
        value += 0.3 * (reward - value)
        running.append(value)
    axes.plot(steps, running, color=BLUE, linewidth=2, label="running mean")
    axes.set(
        xlabel="RL step",
        ylabel="mean reward",
        ylim=(min(0.0, *rewards), max(1.02, *rewards)),
        title="Reward while training",
    )
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(path)


def held_out_bars(path: Path, held_out: Mapping[str, float | None], means: Mapping[str, Accuracy]) -> None:
    """Held-out success before and after each phase, with the 95 % intervals that are known, by the phase's name."""
    shown = [(PHASES[k], COLOURS[k], v) for k, v in held_out.items() if v is not None]
    names, colours, rates = zip(*shown, strict=True)
    figure, axes = _figure(4.6)
    axes.bar(names, rates, color=colours, width=0.55)
    for place, (name, rate) in enumerate(zip(names, rates, strict=True)):
        top = rate
        if (found := means.get(name)) is not None:
            ends, top = [[found.accuracy - found.low], [found.high - found.accuracy]], max(rate, found.high)
            axes.errorbar([place], [found.accuracy], yerr=ends, color=INK, capsize=4, linewidth=1)
        axes.annotate(f"{rate:.2f}", (place, top + 0.015), ha="center", color=INK)
    axes.set(ylim=(0, 1.08), ylabel="success", title="Held-out tasks")
    figure.savefig(path)


def length_curve(path: Path, rows: Sequence[dict[str, float]], trained: int) -> None:
    """Accuracy by document length with 95 % intervals."""
    figure, axes = _figure()
    x = [r["chunks"] for r in rows]
    y = [r["accuracy"] for r in rows]
    below = [r["accuracy"] - r["low"] for r in rows]
    above = [r["high"] - r["accuracy"] for r in rows]
    axes.errorbar(x, y, yerr=[below, above], color=BLUE, marker="o", capsize=3, linewidth=2)
    axes.axvline(trained, color=GREY, linestyle=":", linewidth=1.5)
    axes.annotate("training length", (trained, 0.04), xytext=(5, 0), textcoords="offset points", color="#6b7280")
    axes.set_xscale("log", base=4)
    axes.set_xticks(x, [f"{int(c)}\n{int(r['multiple'])}×" for c, r in zip(x, rows, strict=True)])
    axes.minorticks_off()
    axes.set(
        ylim=(0, 1.05),
        xlabel="sections in the document",
        ylabel="success",
        title="Accuracy by document length",
    )
    figure.savefig(path)


def length_curves(path: Path, curves: dict[str, list[dict[str, Any]]], trained: int, unit: str) -> None:
    """Accuracy by document length with 95 % intervals, one line for each agent."""
    figure, axes = _figure(6.8, 3.8)
    colours = [BLUE, ORANGE, "#16a34a", "#9333ea", INK]
    for k, (agent, rows) in enumerate(curves.items()):
        x = [r["chunks"] * (1 + 0.03 * k) for r in rows]  # a little apart, so that intervals can be told apart
        y = [r["accuracy"] for r in rows]
        errors = [[v - r["low"] for v, r in zip(y, rows, strict=True)], [r["high"] - r["accuracy"] for r in rows]]
        style = {"marker": "o", "linewidth": 2} if k == 0 else {"marker": "s", "linewidth": 1.4, "linestyle": "--"}
        axes.errorbar(x, y, yerr=errors, color=colours[k % len(colours)], capsize=3, label=agent, **style)
    if trained:
        axes.axvline(trained, color=GREY, linestyle=":", linewidth=1.5)
        axes.annotate("training length", (trained, 0.04), xytext=(5, 0), textcoords="offset points", color="#6b7280")
    ticks = sorted({r["chunks"] for rows in curves.values() for r in rows})
    axes.set_xscale("log", base=4)
    axes.set_xticks(ticks, [f"{t:,}" for t in ticks])
    axes.minorticks_off()
    axes.set(ylim=(0, 1.05), xlabel=unit, ylabel="success", title="Accuracy by document length")
    if len(curves) > 1:
        axes.legend(frameon=False, loc="best")
    figure.savefig(path)


def success_bars(path: Path, found: dict[str, dict[str, dict[str, float]]]) -> None:
    """Success after every phase, domain by domain, with 95 % intervals."""
    figure, axes = _figure(1.6 + 1.9 * len(found), 3.6)
    width = 0.26
    for i, (phase, name) in enumerate(PHASES.items()):
        places = [d + (i - 1) * width for d, rows in enumerate(found.values()) if phase in rows]
        rows = [rows[phase] for rows in found.values() if phase in rows]
        heights = [r["accuracy"] for r in rows]
        below, above = [r["accuracy"] - r["low"] for r in rows], [r["high"] - r["accuracy"] for r in rows]
        axes.bar(places, heights, width * 0.92, color=COLOURS[phase], label=name, yerr=[below, above], ecolor="#6b7280")
        for x, r in zip(places, rows, strict=True):
            axes.annotate(f"{r['accuracy']:.2f}", (x, r["high"] + 0.015), ha="center", color=INK, fontsize=8)
    axes.set_xticks(range(len(found)), list(found))
    axes.set(ylim=(0, 1.22), ylabel="success", title="Success on held-out tasks")
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    axes.legend(frameon=False, loc="upper left", ncols=3, fontsize=8)
    figure.savefig(path)


def curve(path: Path, steps: Sequence[int], values: Sequence[float], texts: tuple[str, str, str]) -> None:
    """One quantity over training; ``texts``: what the axes are, and the title."""
    figure, axes = _figure(5.2, 3.2)
    axes.plot(steps, values, color=BLUE, linewidth=2)
    axes.set(xlabel=texts[0], ylabel=texts[1], title=texts[2])
    axes.set_ylim(bottom=0)
    figure.savefig(path)


def stage_bars(path: Path, names: Sequence[str], rates: Sequence[float]) -> None:
    """Held-out success of the base, after every stage, and of training end to end."""
    figure, axes = _figure(max(4.6, 1.5 * len(names)))
    colours = [ORANGE if name == "end to end" else GREY if name == "base" else BLUE for name in names]
    bars = axes.bar(names, rates, color=colours, width=0.55)
    axes.bar_label(bars, fmt="%.2f", padding=2, color=INK)
    axes.set(ylim=(0, 1.08), ylabel="success", title="Held-out tasks")
    figure.savefig(path)
