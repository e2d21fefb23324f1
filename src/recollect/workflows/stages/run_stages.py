"""`recollect stages`: run every stage, evaluate after each, and record which weights were trained against which.

Each stage is a run of its own below the common directory, so a killed command goes on in the middle of any stage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from recollect.config import Config
from recollect.config.roles import bindings as bound_roles
from recollect.config.roles import roles_of
from recollect.files.locks import lock_folder
from recollect.files.output import refuse_unwritable, write_atomic
from recollect.models.checkpoints import find_checkpoint, pin_models
from recollect.models.device import pick_device, pick_dtype
from recollect.models.load import load_model
from recollect.models.scratch_models import SCRATCH
from recollect.models.weights_digest import weights_digest
from recollect.rewards.before_run import check_reward
from recollect.runs.directory import RunDirectory, dump
from recollect.runtime.console import Console
from recollect.sources.task_stream import TaskStream, held_out
from recollect.training import checkpoint
from recollect.training.finished import finished
from recollect.training.train_run import TrainRun
from recollect.types import BadInput
from recollect.workflows.stages.stage_plan import Stage, StagePlan, bindings
from recollect.workflows.stages.stages_report import write_report

LINEAGE = "lineage.json"


def run_stages(plan: StagePlan, console: Console) -> dict[str, Any]:
    """Run what is left of all stages and write the report."""
    _check_root(plan.root)
    with lock_folder(plan.root, f"the folder {plan.root} of these stages"):
        return Work(plan, console).run()


class Work:
    """The stages of a plan, under way."""

    def __init__(self, plan: StagePlan, console: Console) -> None:
        self.plan, self.console = plan, console
        check_rewards(plan, lambda text: None)
        self.base = ""
        self.newest: dict[str, str] = {}
        self.hashes: dict[str, str] = {}  # of weights, by folder
        self.lineage: list[dict[str, Any]] = []
        self.seconds = 0.0

    def run(self) -> dict[str, Any]:
        """All stages, then the comparison."""
        plan = self.plan
        self.base = self._base()
        self.newest = dict.fromkeys(roles_of(plan.cfg) or (), self.base)
        rows = [self._stage(stage) for stage in plan.stages]
        compared = self._stage(plan.end_to_end) if plan.end_to_end else None
        base, between = rows[0].pop("before"), _interval_before(RunDirectory(plan.folder(plan.stages[0])))
        for row in rows[1:]:
            row.pop("before")
        if compared is not None:
            compared.pop("before")
        report = {"base": base, **between, "stages": rows, "end_to_end": compared, "lineage": self.lineage}
        report |= {"base_model": self.base, "seed": plan.cfg.trainer.seed}
        return write_report(plan, report, self.seconds, self.console)

    def _base(self) -> str:
        """The model that every role starts from: the one named, or the warm start that the recipe makes of it."""
        plan, name = self.plan, self.plan.cfg.actor_rollout_ref.model.path
        if (cfg := plan.warm_config()) is not None:
            self.console.say(f"warm start: {cfg.sft.steps} updates on {cfg.sft.data}, from {name}")
            self._do(cfg)
            return _checkpoint(Path(cfg.trainer.default_local_dir))
        if name not in SCRATCH:
            return name
        folder = plan.root / "base"
        if not (folder / "config.json").is_file():
            SCRATCH[name].save(folder, plan.cfg.trainer.seed)
        return str(folder)

    def _stage(self, stage: Stage) -> dict[str, Any]:
        plan, alone = self.plan, not stage.number
        newest = dict.fromkeys(self.newest, self.base) if alone else self.newest
        start = newest[stage.roles[0]] if stage.start == "last" else self.base if stage.start == "base" else stage.start
        bound = bindings(stage, newest, self.base)
        cfg = plan.config(stage, start, bound)
        against = ", ".join(f"{role}={text}" for role, text in bound.items() if text != "trainable")
        self.console.say(
            f"stage {stage.name}: trains {stage.title} from {start}" + (f" against {against}" if against else "")
        )
        report = self._do(cfg)
        became = _checkpoint(plan.folder(stage))
        if not alone:
            self.newest |= dict.fromkeys(stage.roles, became)
        self._record(stage, cfg, start, became, report)
        return row_of(stage, cfg, start, became, report)

    def _do(self, cfg: Config) -> dict[str, Any]:
        """The report of a run, once it is done; its seconds count, whichever command spent them."""
        pin_models(cfg, self.console.say)
        done = finished(RunDirectory.usable(cfg), cfg.trainer.total_training_steps, self.console)
        report = done or TrainRun(cfg, self.console).fit()
        self.seconds += report["seconds"]["total"]
        return report

    def _record(self, stage: Stage, cfg: Config, start: str, became: str, report: Mapping[str, Any]) -> None:
        """Note which weights were trained against which; a server of our own is known by the weights it serves."""
        fixed, bound = report["fixed_roles"], bound_roles(cfg)
        for found in fixed.values():
            if found.get("after"):
                self.hashes.setdefault(found["model"], found["after"])
        self.hashes[became] = report["weights_hash"]
        against = {role: {"model": f["model"], "hash": f.get("after")} for role, f in fixed.items()}
        for role in (r for r in against if bound[r].kind == "serve"):
            model = find_checkpoint(bound[role].where)[0]
            against[role] = {"model": model, "hash": self._hash(model, cfg)}
        self.lineage.append(
            {
                "stage": stage.name,
                "trained": list(stage.roles),
                "from": {"model": start, "hash": self._hash(find_checkpoint(start)[0], cfg)},
                "against": against,
                "became": {"model": became, "hash": report["weights_hash"]},
            }
        )
        write_atomic(self.plan.root / LINEAGE, dump(self.lineage, indent=2) + "\n")

    def _hash(self, model: str, cfg: Config) -> str | None:
        """The digest of a model's weights, as a stage samples with them; None for weights that are made anew."""
        if model not in self.hashes and model not in SCRATCH:
            dtype = pick_dtype(cfg.actor_rollout_ref.rollout.dtype, pick_device(cfg.trainer.device))
            self.hashes[model] = weights_digest(load_model(model, dtype, "cpu", None))
        return self.hashes.get(model)


def row_of(stage: Stage, cfg: Config, start: str, became: str, report: Mapping[str, Any]) -> dict[str, Any]:
    """A stage in the report of the whole."""
    fixed = report["fixed_roles"]
    only = next(iter(fixed.values())) if len(fixed) == 1 else None
    digest = lambda name: only.get(name) if only else {r: f.get(name) for r, f in fixed.items()} or None
    interval = report["by_length"][0] if report["by_length"] else {}
    return {
        "name": stage.name,
        "role": stage.title,
        "steps": report["steps"],
        "held_out": report["held_out"]["rl"],
        "low": interval.get("low"),
        "high": interval.get("high"),
        "trained_tokens": report["trained_tokens"],
        "untrained_tokens": report["untrained_tokens"],
        "frozen_hash_before": digest("before"),
        "frozen_hash_after": digest("after"),
        "weights_hash": report["weights_hash"],
        "start": start,
        "others": {role: found["model"] for role, found in fixed.items()},
        "checkpoint": became,
        "seconds": report["seconds"]["total"],
        "before": report["held_out"]["base"],
    }


def check_rewards(plan: StagePlan, say: Callable[[str], None]) -> None:
    """Refuse a reward of any stage that does not fit its tasks; say how the user's own are understood."""
    said: dict[str, None] = {}
    for stage in plan.stages:
        cfg = plan.config(stage, "base", dict.fromkeys(roles_of(plan.cfg) or (), "trainable"))
        stream = TaskStream(cfg)
        check_reward(cfg, [*stream.take(0), *stream.rows, *held_out(cfg)], lambda text: said.update({text: None}))
    for line in said:
        say(line)


def show_plan(plan: StagePlan, console: Console) -> None:
    """`--dry-run`: every stage as it would run, its configuration checked."""
    check_rewards(plan, console.say)
    base = plan.cfg.actor_rollout_ref.model.path
    warm = plan.warm_config()
    rows, newest = [], dict.fromkeys(roles_of(plan.cfg) or (), "base")
    if warm is not None:
        rows.append(("base", "SFT", f"{warm.sft.steps} updates", base, warm.sft.data, str(plan.root / "base")))
    for stage in [*plan.stages, *([plan.end_to_end] if plan.end_to_end else [])]:
        alone = stage is plan.end_to_end
        seen = dict.fromkeys(newest, "base") if alone else newest
        bound = bindings(stage, seen, "base")
        steps = plan.config(stage, base, dict.fromkeys(bound, "trainable")).trainer.total_training_steps
        start = seen[stage.roles[0]] if stage.start == "last" else stage.start
        against = ", ".join(f"{role}={text}" for role, text in bound.items() if text != "trainable") or "–"
        rows.append((stage.name, stage.title, f"{steps} steps", start, against, str(plan.folder(stage))))
        if not alone:
            newest |= dict.fromkeys(stage.roles, f"{stage.name}")
    console.table("Stages", ("stage", "trains", "for", "from", "against", "run"), rows)
    console.say("nothing was started")


def _interval_before(run: RunDirectory) -> dict[str, float | None]:
    """The interval of what the first stage measured before training; of several data sources there is none."""
    row = next((row for row in run.metrics() if row.get("phase") == "base"), {})
    found = {end: [v for k, v in row.items() if k.count("/") == 2 and k.endswith(f"/{end}")] for end in ("low", "high")}
    return {f"base_{end}": values[0] if len(values) == 1 else None for end, values in found.items()}


def _checkpoint(run: Path) -> str:
    """The newest checkpoint of a finished stage."""
    found = checkpoint.names(run / "checkpoints", "step")
    if not found:
        raise BadInput(f"{run} has no checkpoint any more; move the directory away to run its stage again")
    return str(run / "checkpoints" / found[-1])


def _check_root(root: Path) -> None:
    if (root / "config.yaml").is_file():
        raise BadInput(f"{root} holds a single run; name another with trainer.experiment_name=…")
    if root.exists() and not root.is_dir():
        raise BadInput(f"the run directory {root} is a file")
    refuse_unwritable(root, f"the run directory {root}")
