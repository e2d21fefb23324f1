"""The supervised loop over one learner. Batch b depends on settings and b alone, so a killed run resumes exactly."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from recollect.chat import Renderer
from recollect.config import Config
from recollect.packing.batch import Batch
from recollect.runs.directory import RunDirectory
from recollect.runtime.console import Console, sparkline
from recollect.training import checkpoint
from recollect.training.learner.learner import Learner
from recollect.training.sft.sources import batches_of
from recollect.training.step_progress import phase_progress
from recollect.types import Sample


class Supervised:
    """Updates, measurements and checkpoints of the supervised phase."""

    def __init__(
        self,
        cfg: Config,
        run: RunDirectory,
        console: Console,
        learner: Learner,
        renderer: Renderer,
        batches: Any = None,
        held_out: Sequence[Sample] = (),
    ) -> None:
        self.cfg, self.run, self.console, self.learner, self.renderer = cfg, run, console, learner, renderer
        self.batches = batches
        if batches is None:
            self.batches = batches_of(cfg, renderer, learner.facts.window, console.say)
        self.held_out = held_out
        self.seconds = 0.0
        self.saves = True

    def fit(self, start: int = 0, stop: Callable[[], bool] = lambda: False) -> int:
        """Train from update ``start`` to the end, or until asked to stop; returns the updates done."""
        cfg, began = self.cfg, time.monotonic()
        losses: list[float] = []
        done = start
        every = cfg.sft.log_freq or max(1, min(50, cfg.sft.steps // 20))
        if start == 0:
            self.measure(0)
        with self.console.progress("SFT step", cfg.sft.steps, start) as advance:
            for index, item in zip(range(start, cfg.sft.steps), self._items(start), strict=False):
                with phase_progress(advance.within, "update", [self.learner]):
                    row = self.update(item)
                losses.append(row["sft/loss"])
                shown = (index + 1) % every == 0 or index + 1 == cfg.sft.steps
                if shown:
                    self.run.log({"phase": "sft", "step": index + 1, **row})
                speed = f"{row['tokens_per_second']:.0f} tok/s"
                advance(f"loss {row['sft/loss']:.3f} {sparkline(losses[::every])}  {speed}" if shown else "")
                done, stopping = index + 1, stop()
                if done == cfg.sft.steps or (cfg.sft.test_freq > 0 and done % cfg.sft.test_freq == 0):
                    self.measure(done)
                if stopping or (cfg.sft.save_freq > 0 and done % cfg.sft.save_freq == 0 and done < cfg.sft.steps):
                    self.save(done)
                if stopping:
                    break
        self.seconds += time.monotonic() - began
        return done

    def update(self, item: Any) -> dict[str, float]:
        """One update on what a source gave: the mean loss over all of its trained tokens."""
        start = time.monotonic()
        made = self.learner.imitate(item)
        return {
            "sft/loss": made["loss"],
            "sft/token_accuracy": made["token_accuracy"],
            "sft/lr": made["lr"],
            "sft/grad_norm": made["grad_norm"],
            "sft/tokens": made["tokens"],
            "tokens_per_second": made["tokens_computed"] / (time.monotonic() - start),
        }

    def measure(self, step: int) -> dict[str, float]:
        """Loss and token accuracy on held-out conversations, logged; empty when there are none."""
        if not self.held_out:
            return {}
        start = time.monotonic()
        losses, hits = self.learner.imitation_scores(Batch.of(self.held_out))
        row = {"val/loss": float(losses.mean()), "val/token_accuracy": float(hits.mean())}
        self.run.log({"phase": "sft", "step": step, **row, "time/eval": time.monotonic() - start})
        name = "before" if step == 0 else f"after {step}"
        self.console.say(
            f"held-out conversations {name}: loss {row['val/loss']:.4f}, "
            f"token accuracy {row['val/token_accuracy']:.3f} ({len(self.held_out)} sequences)"
        )
        return row

    def save(self, step: int) -> None:
        """Write a checkpoint of the supervised phase, where checkpoints are wanted."""
        if not self.saves:
            return
        folder = self.run.path / "checkpoints"
        state = {"step": step, "metrics_size": self.run.metrics_size()}
        checkpoint.save(folder, f"sft-{step}", self.learner, self.renderer, state)
        checkpoint.prune(folder, "sft", self.cfg.trainer.max_ckpt_to_keep)

    def resume(self) -> int:
        """Continue from the newest checkpoint of this phase; returns the updates done."""
        state = checkpoint.load_newest(self.run.path / "checkpoints", "sft", self.learner, self.console.warn)
        if state is None:
            return 0
        self.run.truncate_metrics(state["metrics_size"], self.console.warn)
        return int(state["step"])

    def _items(self, start: int) -> Any:
        if self.cfg.sft.workers > 0:
            return iter(
                torch.utils.data.DataLoader(
                    self.batches,
                    batch_size=None,
                    sampler=range(start, self.cfg.sft.steps),
                    num_workers=self.cfg.sft.workers,
                    prefetch_factor=8,
                    multiprocessing_context="fork",
                )
            )
        return (self.batches[i] for i in range(start, self.cfg.sft.steps))
