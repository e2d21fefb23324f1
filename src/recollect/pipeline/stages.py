"""The stages, each a function from the plan to what it has made. What one writes the next reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recollect.console import Console
from recollect.pipeline.generate import generate
from recollect.pipeline.measure import measure
from recollect.pipeline.plan import Plan
from recollect.run import remove_tree
from recollect.trajectories.convert import convert
from recollect.trajectories.score import reward
from recollect.trajectories.sft_data import Choice, sft_data
from recollect.types import BadInput


@dataclass(frozen=True)
class Place:
    """Where a pipeline writes."""

    out: Path

    @property
    def raw(self) -> Path:
        return self.out / "raw"

    @property
    def unified(self) -> Path:
        return self.out / "unified"

    @property
    def sft_data(self) -> Path:
        return self.out / "sft_data"

    def model(self, phase: str) -> Path:
        """The run directory of a training stage."""
        return self.out / phase


def _generate(plan: Plan, place: Place, console: Console) -> dict[str, Any]:
    return {domain: generate(plan, domain, place.raw / f"{domain}.jsonl", console) for domain in plan.agents}


def _convert(plan: Plan, place: Place, console: Console) -> dict[str, Any]:
    problems = 0
    for domain in plan.agents:
        source = _there(place.raw / f"{domain}.jsonl", "generate")
        problems += convert([str(source)], domain, place.unified / f"{domain}.jsonl", console, overwrite=True)
    return {"problems": problems}


def _reward(plan: Plan, place: Place, console: Console) -> dict[str, Any]:
    files = [str(_there(place.unified / f"{domain}.jsonl", "convert")) for domain in plan.agents]
    analysis, _ = reward(files, console, place.out / "rewards.json", weights=plan.weights, overwrite=True)
    means = {d: s["total"]["mean"] for d, s in analysis["statistics"].items() if s["n"]}
    return {"mean": means, "scored": analysis["scored"]}


def _sft_data(plan: Plan, place: Place, console: Console) -> dict[str, Any]:
    files = [str(_there(place.unified / f"{domain}.jsonl", "convert")) for domain in plan.agents]
    choice = Choice(plan.templates, None, plan.min_reward, plan.val_ratio, plan.config({}).trainer.seed)
    remove_tree(place.sft_data)
    sft_data(files, place.sft_data, choice, console)
    return {"out": str(place.sft_data)}


def _sft(plan: Plan, place: Place, console: Console) -> dict[str, Any]:
    from recollect.train.sft.command import supervise

    _there(place.sft_data / "SUMMARY.json", "sft-data")
    data = [f"data.train_files={json.dumps([str(place.sft_data)])}", f"trainer.default_local_dir={place.model('sft')}"]
    return supervise(plan.config(plan.sft, *data), console)


def _rl(plan: Plan, place: Place, console: Console) -> dict[str, Any]:
    from recollect.train.fit import Fit

    files = [str(_there(place.unified / f"{domain}.jsonl", "convert")) for domain in plan.agents]
    start = place.model("sft") / "model"
    path = str(start) if start.is_dir() else plan.model
    given = [f"data.train_files={json.dumps(files)}", f"data.min_reward={plan.rl_min_reward}"]
    given += [f"actor_rollout_ref.model.path={path}", f"trainer.default_local_dir={place.model('rl')}"]
    report = Fit(plan.config(plan.rl, *given), console).fit()
    return {"steps": report["steps"], "seconds": report["seconds"], "start": path}


def _evaluate(plan: Plan, place: Place, console: Console) -> dict[str, Any]:
    models = {"base": plan.model}
    models |= {p: str(place.model(p)) for p in ("sft", "rl") if (place.model(p) / "checkpoints").is_dir()}
    found = {name: measure(plan, model, name, console) for name, model in models.items()}
    return {domain: {name: rows[domain] for name, rows in found.items()} for domain in plan.agents}


def _there(path: Path, stage: str) -> Path:
    if not path.exists():
        raise BadInput(f"{path} is not there: the stage {stage} has not been run")
    return path


Stage = Callable[[Plan, Place, Console], dict[str, Any]]
STAGES: dict[str, Stage] = {
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
    "generate": ("model", "agents", "policy", "samples", "settings", "weights"),
    "convert": ("agents",),
    "reward": ("weights",),
    "sft-data": ("templates", "min_reward", "val_ratio"),
    "sft": ("model", "settings", "sft"),
    "rl": ("model", "settings", "rl", "rl_min_reward"),
    "evaluate": ("model", "agents", "settings"),
}


def outputs(plan: Plan, place: Place, stage: str) -> list[Path]:
    """What a complete stage has left behind for those after it."""
    per_domain = {"generate": place.raw, "convert": place.unified}
    if stage in per_domain:
        return [per_domain[stage] / f"{domain}.jsonl" for domain in plan.agents]
    single = {
        "reward": place.out / "rewards.json",
        "sft-data": place.sft_data / "SUMMARY.json",
        "sft": place.model("sft") / "model",
        "rl": place.model("rl") / "checkpoints",
    }
    return [single[stage]] if stage in single else []
