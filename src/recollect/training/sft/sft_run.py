"""A whole run of `recollect sft`: supervised updates, checkpoints, the final model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recollect.agents.rollout import Collector
from recollect.chat import Renderer
from recollect.config import Config, Trainer
from recollect.eval.accuracy import accuracy
from recollect.eval.evaluate import evaluate
from recollect.models.checkpoints import damage, pin_models
from recollect.models.checksums import CHECKED, SFT_REPORT, file_names, write_checksums
from recollect.models.export import writing_model
from recollect.rewards.before_run import check_reward
from recollect.runs.directory import RunDirectory
from recollect.runs.trackers.chosen_trackers import trackers_of
from recollect.runs.trackers.follow import tracking
from recollect.runtime.console import Console
from recollect.runtime.error_text import listed
from recollect.sources.task_stream import held_out
from recollect.training import checkpoint
from recollect.training.interrupt import Interrupted, StopRequest, interruptible
from recollect.training.learner.learner import Learner
from recollect.training.setup import build, build_learner
from recollect.training.sft.sequences import holds_conversations, read_samples, shuffled_part
from recollect.training.sft.sources import FILES, batches_of, held_out_sequences, is_stored, limits_of
from recollect.training.sft.tool_data import CONVERSATIONS, tool_file
from recollect.training.sft.updates import Supervised
from recollect.types import BadInput, Sample, Task

LAST = "step-0"  # the checkpoint of a complete run, which RL may start from
LARGE = 50_000_000  # parameters from which the learning rate of the embedded models is too high


def supervise(cfg: Config, console: Console, tool: str | None = None) -> dict[str, Any]:
    """Train, write the folder ``model``, and say how well it does; returns the report."""
    settle(cfg, tool)
    run = RunDirectory.claim(cfg)
    try:
        return _supervise(cfg, console, run)
    finally:
        run.release()


def _supervise(cfg: Config, console: Console, run: RunDirectory) -> dict[str, Any]:
    pin_models(cfg, console.say)
    trackers_of(cfg.trainer.logger, console.warn)
    if tasks := _tasks(cfg):
        check_reward(cfg, tasks, console.say)
    learner, renderer, collector = _parts(cfg, tasks, console)
    window = learner.facts.window
    batches = batches_of(cfg, renderer, window, console.say)  # bad data is refused before anything is written
    conversations = _conversations(cfg, renderer, window)
    _set_steps(cfg, learner, batches)
    _warn_of_rate(cfg, learner, console)
    run.open(cfg, console.say)
    if (done := run.read_json(SFT_REPORT)) is not None:
        if not (wrong := damage(run.path / "model") or damage(run.path / "checkpoints" / LAST)):
            console.say(f"already done: {run.path / 'model'}")
            return {key: value for key, value in done.items() if key != CHECKED}
        console.warn(f"{run.path} was complete, but is damaged: {wrong}")
    work = Supervised(cfg, run, console, learner, renderer, batches, conversations)
    with tracking(cfg, run, console):
        _train(cfg, run, console, work)
        report = _report(run, work, collector() if tasks else None, tasks)
        for source, found in report["held_out"].items():
            console.say(f"held-out success, {source}: {found['accuracy']:.3f} (n = {found['n']})")
    with writing_model(run.path / "model") as made:
        learner.export(made, cfg.sft.export_dtype)
        renderer.save(made)
    write_checksums(run.path / "model")
    run.write_json(SFT_REPORT, {**report, CHECKED: file_names(run.path / "model")})
    console.say(f"model: {run.path / 'model'}")
    return report


def settle(cfg: Config, tool: str | None) -> None:
    """Fill in what `recollect sft` means: data files are what to imitate, and a run has a name of its own."""
    if cfg.data.train_files and cfg.sft.data == "expert":
        cfg.sft.data = FILES
    name = _run_name(cfg, tool)
    if tool is not None and cfg.sft.data != FILES:
        raise BadInput(f"--tool {tool} takes a folder of `recollect sft-data`: name it with data.train_files=DIR")
    if cfg.sft.data == FILES:
        folders = [f for f in cfg.data.train_files if (Path(f).expanduser() / (tool or CONVERSATIONS)).is_dir()]
        if tool is not None or folders:
            found = [tool_file(f, tool, "train") for f in cfg.data.train_files]
            given = cfg.data.val_files or [v for f in folders if (v := tool_file(f, tool, "val"))]
            cfg.data.train_files, cfg.data.val_files = [f for f in found if f], given
    if not cfg.trainer.default_local_dir:
        cfg.trainer.experiment_name = name


def _run_name(cfg: Config, tool: str | None) -> str:
    """The name of the run: the experiment's, that of the data where the experiment has none of its own, the tool's."""
    name, files = cfg.trainer.experiment_name, cfg.data.train_files
    own = re.sub(r"[^\w.-]+", "", Path(files[0]).stem) if files and name == Trainer().experiment_name else ""
    return "-".join(filter(None, [name, own, tool, "sft"])).replace("-sft-sft", "-sft")


def _tasks(cfg: Config) -> list[Task]:
    """Held-out tasks to attempt, if the held-out data are tasks."""
    if is_stored(cfg) and (not cfg.data.val_files or holds_conversations(cfg.data.val_files)):
        return []
    return held_out(cfg)


def _conversations(cfg: Config, renderer: Renderer, window: int) -> list[Sample]:
    """Held-out conversations to predict, if the held-out data are conversations, or an oracle says them."""
    if not is_stored(cfg):
        return held_out_sequences(cfg, renderer, window)
    if not (cfg.data.val_files and holds_conversations(cfg.data.val_files)):
        return []
    found = read_samples(cfg.data.val_files, renderer, limits_of(cfg, window)).samples
    if not found:
        raise BadInput(f"nothing to measure on in data.val_files={listed(cfg.data.val_files)}")
    return shuffled_part(found, cfg.data.val_max_samples, cfg.trainer.seed)


def _parts(cfg: Config, tasks: Sequence[Task], console: Console) -> tuple[Learner, Renderer, Any]:
    """Learner and renderer, and how to make the agent that attempts tasks with what was learnt."""
    if not tasks:
        return *build_learner(cfg, cfg.sft.optim, cfg.sft.steps, console.warn), None
    longest = max((t.question for t in tasks), key=len)
    policy = build(cfg, cfg.sft.optim, cfg.sft.steps, longest, console.warn)

    def collector() -> Collector:
        policy.sync(0)
        return Collector(cfg, policy.roles())

    return policy.learner, policy.renderer, collector


def _set_steps(cfg: Config, learner: Learner, batches: Any) -> None:
    """The updates to make: those asked for, else whole passes over the data."""
    if cfg.sft.steps <= 0:
        if not hasattr(batches, "per_epoch"):
            raise BadInput("sft.steps=0: say how many updates to make, for example sft.steps=200")
        cfg.sft.steps = cfg.trainer.total_epochs * batches.per_epoch
    learner.set_schedule(cfg.sft.steps)


def _warn_of_rate(cfg: Config, learner: Learner, console: Console) -> None:
    if learner.facts.trained >= LARGE and cfg.sft.optim.lr >= 1e-3:
        console.warn(f"sft.optim.lr={cfg.sft.optim.lr:g} suits the embedded models; for this one 1e-5 is usual")


def _train(cfg: Config, run: RunDirectory, console: Console, work: Supervised) -> None:
    """All updates, from wherever the run stands, and the checkpoint that the next stage starts from."""
    folder, request = run.path / "checkpoints", StopRequest()
    if (folder / LAST).is_dir():
        try:
            state = checkpoint.load(folder / LAST, work.learner, needed=("metrics_size",))
        except Exception as error:
            why = " ".join(str(error).split())
            raise BadInput(f"{folder / LAST} cannot be read ({why}); move {run.path} away to train again") from None
        run.truncate_metrics(state["metrics_size"], console.warn)
        return
    start = work.resume()
    if start == 0:
        run.truncate_metrics(0, console.warn)
    with interruptible(console, request, "update"):
        done = work.fit(start, lambda: request.made)
    if done < cfg.sft.steps:
        raise Interrupted
    state = {"step": 0, "metrics_size": run.metrics_size()}
    checkpoint.save(folder, LAST, work.learner, work.renderer, state)
    checkpoint.prune(folder, "sft", 0)


def _report(run: RunDirectory, work: Supervised, collector: Collector | None, tasks: Sequence[Task]) -> dict[str, Any]:
    """What the run says about itself: its last training row, what was measured, success at tasks."""
    rows = [r for r in run.metrics() if r.get("phase") == "sft"]
    trained = [r for r in rows if "sft/loss" in r]
    measured = [r for r in rows if "val/loss" in r]
    pick = lambda row, *names: {n.split("/")[-1]: row[n] for n in names}
    report = {
        "steps": work.cfg.sft.steps,
        "train": pick(trained[-1], "sft/loss", "sft/token_accuracy") if trained else None,
        "before": pick(measured[0], "val/loss", "val/token_accuracy") if measured else None,
        "after": pick(measured[-1], "val/loss", "val/token_accuracy") if measured else None,
        "held_out": {},
    }
    if collector is not None:
        report["held_out"] = {"all": accuracy(evaluate(collector, tasks, "val")).row()}
    return report
