"""A whole run of `recollect train`: base evaluation, SFT if asked, RL, final evaluation, report; resumable anywhere."""

from __future__ import annotations

import copy
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from recollect.config import Config
from recollect.console import Console, sparkline
from recollect.data.tasks import TaskStream, held_out
from recollect.eval.accuracy import accuracy
from recollect.eval.evaluate import by_length, by_source, evaluate
from recollect.eval.report import write_report
from recollect.rollout import Collector
from recollect.run import Run
from recollect.train import checkpoint
from recollect.train.learner import Learner
from recollect.train.rl import Progress, Reinforce
from recollect.train.setup import build
from recollect.train.sft import Supervised
from recollect.types import BadInput, Group


class Interrupted(Exception):
    """The user asked to stop; everything is saved."""


class Fit:
    """One run, from wherever its directory stands to its report."""

    def __init__(self, cfg: Config, console: Console) -> None:
        self.cfg, self.console = cfg, console
        stream, self.val_tasks = TaskStream(cfg, console.say), held_out(cfg)
        self.total = cfg.trainer.total_training_steps = stream.steps()
        actor = cfg.actor_rollout_ref.actor
        per_step = cfg.data.train_batch_size // (actor.ppo_mini_batch_size or cfg.data.train_batch_size)
        self.updates = self.total * per_step * actor.ppo_epochs
        questions = [t.question for t in [*stream.take(0), *stream.rows, *self.val_tasks]]
        parts = build(cfg, actor.optim, self.updates, max(questions, key=len))
        collector = Collector(cfg, parts.roles())  # finds agent and reward before anything is written
        self.run = Run.start(cfg)
        self.parts, self.collector = parts, collector
        self.progress = Progress()
        self.rl = Reinforce(cfg, self.run, parts, stream, self.progress)
        self.folder = self.run.path / "checkpoints"
        self.began = time.monotonic()
        self.stopping = False

    def fit(self) -> dict[str, Any]:
        """Do what is left of the run and return its report."""
        done = self.run.read_json("report.json")
        if done is not None and done["steps"] == self.total:
            self.console.say(f"{self.run.path} is complete; this is its report")
            return dict(done)
        with self._interruptible():
            resumed = self._resume()
            if not resumed:
                self._before_rl()
            self._keep_reference(resumed)
            self.parts.sync(self.progress.step)
            self._reinforce()
        return self._finish()

    # ---- phases ----

    def _before_rl(self) -> None:
        cfg, progress = self.cfg, self.progress
        self.parts.sync(0)
        if cfg.trainer.val_before_train and self.val_tasks:
            progress.held_out["base"] = self._validate("base")
        if cfg.sft.steps > 0:
            actor = cfg.actor_rollout_ref.actor
            learner = Learner(
                self.parts.learner.model,
                cfg.sft.optim,
                cfg.sft.steps,
                self.parts.learner.dtype,
                actor.grad_clip,
            )
            supervised = Supervised(cfg, self.run, self.console, learner, self.parts.tokenizer)
            supervised.fit(supervised.resume(), lambda: self.stopping)
            if self.stopping:
                raise Interrupted
            progress.seconds["sft"] += supervised.seconds
            self.parts.sync(0)
            if self.val_tasks:
                progress.held_out["sft"] = self._validate("sft")
        self._save()

    def _keep_reference(self, resumed: bool) -> None:
        """With a KL term, the weights that RL starts from stay as the reference policy."""
        cfg = self.cfg
        if not cfg.actor_rollout_ref.actor.use_kl_loss:
            return
        model = copy.deepcopy(self.parts.learner.model)
        reference = Learner(
            model.requires_grad_(False),
            cfg.actor_rollout_ref.actor.optim,
            1,
            self.parts.learner.dtype,
            frozen=True,
        )
        if resumed and self.progress.step > 0:
            checkpoint.load_weights(self.folder / "step-0", reference)
        self.rl.reference = reference

    def _reinforce(self) -> None:
        cfg, progress = self.cfg, self.progress
        total = self.total
        rewards = [r["reward/mean"] for r in self.run.metrics() if "reward/mean" in r]
        with self.console.progress("RL step", total, progress.step) as advance:
            while progress.step < total:
                row = self.rl.step()
                rewards.append(row["reward/mean"])
                advance(
                    f"reward {rewards[-1]:.3f} {sparkline(rewards)}  {row['tokens_per_second']:.0f} tok/s  "
                    f"rollout {row['time/rollout']:.1f} s  update {row['time/update']:.1f} s"
                )
                last = progress.step == total
                if _due(progress.step, cfg.trainer.test_freq) and not last and self.val_tasks:
                    self._validate("rl")
                if _due(progress.step, cfg.trainer.save_freq) or last or self.stopping:
                    self._save()
                if self.stopping:
                    raise Interrupted

    def _finish(self) -> dict[str, Any]:
        cfg, progress = self.cfg, self.progress
        start = time.monotonic()
        lengths: list[dict[str, float]] = []
        groups: list[Group] = []
        if not cfg.data.val_files and not cfg.data.train_files:
            turns = sum(
                n * (m * cfg.data.needle.chunks + 1)
                for m, n in zip(cfg.evaluation.lengths, cfg.evaluation.tasks, strict=True)
            )
            with self.console.progress("reading held-out documents, sections", turns) as advance:
                lengths, groups = by_length(self.collector, lambda count: advance("", count))
        elif self.val_tasks:
            groups = evaluate(self.collector, self.val_tasks, "val")
        if groups:
            own = groups[: cfg.evaluation.tasks[0]] if lengths else groups
            phase = "rl" if self.total else "base"
            progress.held_out[phase] = accuracy(own).accuracy
            self.run.log({"step": progress.step, **_validation_row(own)})
            self.run.save_trajectories("evaluation", groups)
        progress.seconds["eval"] += time.monotonic() - start
        progress.seconds["total"] += time.monotonic() - self.began
        return write_report(self.run, cfg, progress, lengths, groups)

    # ---- helpers ----

    def _validate(self, phase: str) -> float:
        start = time.monotonic()
        title = {"base": "before training", "sft": "after SFT"}.get(phase, f"after step {self.progress.step}")
        with self.console.progress(f"held-out tasks {title}", len(self.val_tasks)) as advance:
            self.collector.on_done = lambda trajectory: advance("", 1) if trajectory.sample == 0 else None
            groups = evaluate(self.collector, self.val_tasks, "val")
            self.collector.on_done = lambda trajectory: None
        self.progress.seconds["eval"] += time.monotonic() - start
        self.run.log({"step": self.progress.step, "phase": phase, **_validation_row(groups)})
        found = accuracy(groups)
        self.console.say(
            f"held-out success {title}: {found.accuracy:.3f} (95 % {found.low:.3f}–{found.high:.3f}, n = {found.n})"
        )
        return found.accuracy

    def _save(self) -> None:
        cfg, progress = self.cfg, self.progress
        progress.metrics_size = self.run.metrics_size()
        now = time.monotonic()
        progress.seconds["total"] += now - self.began
        self.began = now
        checkpoint.save(
            self.folder, f"step-{progress.step}", self.parts.learner, self.parts.tokenizer, progress.state()
        )
        keep_first = ("step-0",) if cfg.actor_rollout_ref.actor.use_kl_loss else ()
        checkpoint.prune(self.folder, "step", cfg.trainer.max_ckpt_to_keep, keep_first)
        checkpoint.prune(self.folder, "sft", 0)
        share = progress.sampled_tokens / progress.trained_tokens if progress.trained_tokens else None
        record = {
            "trained_tokens": progress.trained_tokens,
            "sampled_tokens": progress.sampled_tokens,
            "fidelity": share,
        }
        self.run.write_json("fidelity.json", record)

    def _resume(self) -> bool:
        state = checkpoint.load_newest(self.folder, "step", self.parts.learner, self.console.warn)
        if state is None:
            if not checkpoint.names(self.folder, "sft"):
                self.run.truncate_metrics(0)
            return False
        for key, value in state.items():
            setattr(self.progress, key, value)
        if self.progress.step > self.total:
            raise BadInput(
                f"{self.run.path} is at step {self.progress.step}, past trainer.total_training_steps={self.total}"
            )
        self.run.truncate_metrics(self.progress.metrics_size)
        if self.progress.step:
            self.console.say(f"resuming {self.run.path} at step {self.progress.step}")
        return True

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Ctrl-C once: finish the step, save, stop. Twice: stop now."""

        def ask(number: int, frame: Any) -> None:
            if self.stopping:
                raise KeyboardInterrupt
            self.stopping = True
            self.console.warn("stopping after this step (Ctrl-C again to stop now)")

        before = signal.signal(signal.SIGINT, ask)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def _validation_row(groups: list[Any]) -> dict[str, float]:
    row: dict[str, float] = {}
    for source, found in by_source(groups).items():
        row[f"val/{source}/accuracy"] = found.accuracy
        row[f"val/{source}/low"], row[f"val/{source}/high"] = found.low, found.high
        row[f"val/{source}/n"] = found.n
    return row
