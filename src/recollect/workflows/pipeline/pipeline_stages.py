"""The stages. Each is a function of the plan; the next stage reads what it writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from recollect.files.output import write_atomic
from recollect.registries import DOMAINS
from recollect.runs.directory import dump
from recollect.runtime.console import Console
from recollect.types import BadInput
from recollect.workflows.pipeline.generate_trajectories import generate
from recollect.workflows.pipeline.paths import Place, there
from recollect.workflows.pipeline.pipeline_plan import Plan
from recollect.workflows.pipeline.success import measure
from recollect.workflows.trajectories.convert import convert
from recollect.workflows.trajectories.score import reward
from recollect.workflows.trajectories.sft_data import Choice, sft_data


def _generate(plan: Plan, place: Place, console: Console) -> dict[str, Any]:
    return {domain: generate(plan, domain, place.raw_file(domain), console) for domain in plan.agents}


def _convert(plan: Plan, place: Place, console: Console) -> dict[str, Any]:
    problems = 0
    for domain, sources in place.sources(plan.agents).items():
        known = domain if domain in DOMAINS else None
        problems += convert(sources, known, place.unified_file(domain), console, overwrite=True)
    return {"problems": problems}


def _reward(plan: Plan, place: Place, console: Console) -> dict[str, Any]:
    files = place.converted(plan.agents)
    analysis, _ = reward(files, console, place.rewards, weights=plan.weights, overwrite=True)
    means = {d: s["total"]["mean"] for d, s in analysis["statistics"].items() if s["n"]}
    return {"mean": means, "scored": analysis["scored"]}


def _sft_data(plan: Plan, place: Place, console: Console) -> dict[str, Any]:
    files = place.converted(plan.agents)
    choice = Choice(plan.templates, None, plan.min_reward, plan.val_ratio, plan.config({}).trainer.seed)
    sft_data(files, place.sft_data, choice, console, overwrite=True)
    return {"out": str(place.sft_data)}


def _sft(plan: Plan, place: Place, console: Console) -> dict[str, Any]:
    there(place.sft_data / "SUMMARY.json", "sft-data")
    if not plan.tools:
        return _supervise(plan, place.sft, None, place, console)
    made = {}
    for tool in plan.tools:
        if (place.sft_data / tool / "train.jsonl").is_file():
            console.say(f"SFT of the tool {tool}")
            made[tool] = _supervise(plan, place.sft / tool, tool, place, console)
        else:
            console.say(f"there are no rows of the tool {tool}, so there is no model of it")
    if not made:
        raise BadInput(f"{place.sft_data} has rows of none of tools: {', '.join(plan.tools)}")
    return {"tools": made}


def _supervise(plan: Plan, out: Path, tool: str | None, place: Place, console: Console) -> dict[str, Any]:
    from recollect.training.sft.sft_run import supervise

    data = [f"data.train_files={json.dumps([str(place.sft_data)])}", f"trainer.default_local_dir={out}"]
    return supervise(plan.config(plan.sft, *data), console, tool)


def _rl(plan: Plan, place: Place, console: Console) -> dict[str, Any]:
    from recollect.training.train_run import TrainRun

    files = place.converted(plan.agents)
    start = place.acting_model()
    path = str(start) if start.is_dir() else plan.model
    given = [f"data.train_files={json.dumps(files)}", f"data.min_reward={plan.rl_min_reward}"]
    given += [f"actor_rollout_ref.model.path={path}", f"trainer.default_local_dir={place.rl}"]
    given += [f"data.train_max_samples={plan.max_examples}"] if plan.max_examples > 0 else []
    report = TrainRun(plan.config(plan.rl, *given), console).fit()
    return {"steps": report["steps"], "seconds": report["seconds"], "start": path}


def _evaluate(plan: Plan, place: Place, console: Console) -> dict[str, Any]:
    runs = {"sft": place.acting_model().parent, "rl": place.rl}
    models = {"base": plan.model, **{p: str(run) for p, run in runs.items() if (run / "checkpoints").is_dir()}}
    found = {name: measure(plan, model, name, console) for name, model in models.items()}
    made = {domain: {name: rows[domain] for name, rows in found.items()} for domain in found["base"]}
    if place.evaluation is not None:
        place.evaluation.mkdir(parents=True, exist_ok=True)
        write_atomic(place.evaluation / "evaluation.json", dump(made, indent=2) + "\n")
    return made


PipelineStage = Callable[[Plan, Place, Console], dict[str, Any]]
STAGES: dict[str, PipelineStage] = {
    "generate": _generate,
    "convert": _convert,
    "reward": _reward,
    "sft-data": _sft_data,
    "sft": _sft,
    "rl": _rl,
    "evaluate": _evaluate,
}
NEEDS: dict[str, Sequence[str]] = {  # what a stage is done again for, if it was
    "generate": (),
    "convert": ("generate",),
    "reward": ("convert",),
    "sft-data": ("convert",),
    "sft": ("sft-data",),
    "rl": ("convert", "sft"),
    "evaluate": ("sft", "rl"),
}
READS: dict[str, Sequence[str]] = {  # the keys of the plan that a stage depends on, beside what it needs
    "generate": ("model", "agents", "policy", "samples", "settings", "weights", "raw_glob"),
    "convert": ("agents", "raw_glob", "unified_dir"),
    "reward": ("weights", "rewards_file"),
    "sft-data": ("templates", "min_reward", "val_ratio", "sft_data_dir"),
    "sft": ("model", "settings", "sft", "tools", "sft_models_dir"),
    "rl": ("model", "settings", "rl", "rl_min_reward", "max_examples", "rl_models_dir"),
    "evaluate": ("model", "agents", "settings", "test_files", "metrics", "evaluation_dir"),
}


def outputs(plan: Plan, place: Place, stage: str) -> list[Path]:
    """The files that a complete stage leaves for the stages after it."""
    trained = [place.sft / tool / "model" for tool in plan.tools if (place.sft / tool).is_dir()]
    made = {
        "generate": [place.raw_file(domain) for domain in plan.agents],
        "convert": [place.unified_file(domain) for domain in plan.agents],
        "reward": [place.rewards],
        "sft-data": [place.sft_data / "SUMMARY.json"],
        "sft": (trained or [place.sft]) if plan.tools else [place.sft / "model"],
        "rl": [place.rl / "checkpoints"],
    }
    return made.get(stage, [])


def run_folders(plan: Plan, place: Place, stage: str) -> list[Path]:
    """The run directories of a stage, which refuse other settings: one that is done anew drops them."""
    made = {"sft": [place.sft / tool for tool in plan.tools] or [place.sft], "rl": [place.rl]}
    return [folder for folder in made.get(stage, []) if (folder / "config.yaml").is_file()]
