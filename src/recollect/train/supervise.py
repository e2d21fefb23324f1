"""A whole run of `recollect sft`: supervised updates, checkpoints, the final model."""

from __future__ import annotations

from recollect.chat import Renderer
from recollect.config import Config
from recollect.console import Console
from recollect.data.tasks import held_out
from recollect.eval.accuracy import accuracy
from recollect.eval.evaluate import evaluate
from recollect.models.export import write_model
from recollect.models.lora import plain_copy
from recollect.rollout import Collector
from recollect.run import Run
from recollect.track import trackers_of
from recollect.track.follow import tracking
from recollect.train import checkpoint
from recollect.train.device import pick_dtype
from recollect.train.interrupt import Asked, Interrupted, interruptible
from recollect.train.setup import build
from recollect.train.sft import Supervised, batches_of
from recollect.types import BadInput


def supervise(cfg: Config, console: Console) -> None:
    """Train, write the folder ``model``, and say how well it does."""
    if cfg.sft.steps <= 0:
        raise BadInput("sft.steps=0: say how many updates to make, for example sft.steps=200")
    if cfg.trainer.experiment_name and not cfg.trainer.default_local_dir:
        cfg.trainer.experiment_name = f"{cfg.trainer.experiment_name}-sft".replace("-sft-sft", "-sft")
    trackers_of(cfg.trainer.logger, console.warn)
    tasks = held_out(cfg)
    asked = max((t.question for t in tasks), key=len, default="")
    parts = build(cfg, cfg.sft.optim, cfg.sft.steps, asked)
    batches_of(cfg, Renderer(parts.tokenizer))  # bad data is refused before anything is written
    run = Run.start(cfg)
    folder = run.path / "checkpoints"
    if (folder / "step-0").is_dir():
        console.say(f"already done: {folder / 'step-0'}")
        return
    asked_to = Asked()
    work = Supervised(cfg, run, console, parts.learner, parts.tokenizer)
    start = work.resume()
    with tracking(cfg, run, console), interruptible(console, asked_to, "update"):
        done = work.fit(start, lambda: asked_to.stop)
    if done < cfg.sft.steps:
        raise Interrupted
    checkpoint.save(folder, "step-0", parts.learner, parts.tokenizer, {"step": 0})
    checkpoint.prune(folder, "sft", 0)
    parts.sync(0)
    if tasks:
        found = accuracy(evaluate(Collector(cfg, parts.roles()), tasks, "val"))
        console.say(f"held-out success: {found.accuracy:.3f} (95 % {found.low:.3f}–{found.high:.3f}, n = {found.n})")
    plain = plain_copy(parts.learner.model, pick_dtype(cfg.sft.export_dtype, "cpu"))
    write_model(plain, parts.tokenizer, run.path / "model")
    console.say(f"model: {run.path / 'model'}")
