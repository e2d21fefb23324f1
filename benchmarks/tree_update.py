"""The policy update on prefix trees against the same update row by row, on the demo's own batch.

The samples of a task share the long beginning of every prompt. Packed as trees, what they share goes through the model
once. This collects one real step of the recipe `needle` and makes the update both ways: as the trainer does, and with
every sequence a chain of its own (no sharing, equal sequences not merged) in the same token budgets. The loss is the
same function of the same tokens, so the gradients have to agree; that is checked in float32 before anything is timed.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from dataclasses import replace

import numpy as np
import torch
from transformers.utils.logging import disable_progress_bar

from recollect.agents.rollout import Collector
from recollect.algos.control import KLController
from recollect.config import Config, Optim
from recollect.config.compose import compose
from recollect.models.device import pick_dtype
from recollect.packing.batch import Batch, build_batch
from recollect.sources.task_stream import TaskStream
from recollect.training.learner.learner import PolicyTargets
from recollect.training.learner.policy_update import policy_update
from recollect.training.learner.trained_model import TrainedModel
from recollect.training.rl.annotate import Annotations
from recollect.training.rl.estimate import estimate
from recollect.training.setup import TrainedPolicy, build
from recollect.types import Sampling

TARGET = 2.0
STILL = Optim(lr=0.0, weight_decay=0.0)  # the optimizer does its work, the weights stay where they are


class Recorder(TrainedModel):
    """A learner that keeps the gradients of an update instead of applying them."""

    def step(self) -> dict[str, float]:
        self.gradient = torch.cat([p.grad.flatten() for p in self.model.parameters() if p.grad is not None]).clone()
        self.optimizer.zero_grad()
        return {"grad_norm": float(self.gradient.norm())}


def collect(cfg: Config, parts: TrainedPolicy) -> tuple[Batch, np.ndarray]:
    """The batch and the advantages of the recipe's first step."""
    rollout = cfg.actor_rollout_ref.rollout
    sampling = Sampling(rollout.temperature, rollout.top_p, rollout.top_k, cfg.data.max_response_length)
    collector = Collector(cfg, parts.roles())
    groups = asyncio.run(collector.collect(TaskStream(cfg).take(0), rollout.n, sampling, "step-0"))
    batch, trajectories = build_batch(groups)
    return batch, estimate(cfg.algorithm, batch, trajectories, Annotations(), KLController(0.0)).advantages


def row_by_row(batch: Batch) -> Batch:
    """The same batch with every sequence a group of its own, so that nothing is shared or merged."""
    return replace(batch, groups=np.arange(len(batch.sequences)))


def update(learner: TrainedModel, batch: Batch, advantages: np.ndarray, cfg: Config) -> dict[str, float]:
    """One update, as the trainer makes it."""
    return policy_update(cfg, learner, batch, PolicyTargets(advantages))


def check_gradients(parts: TrainedPolicy, batches: dict[str, Batch], advantages: np.ndarray, cfg: Config) -> float:
    """The relative difference between the two gradients in float32; it must be rounding error."""
    recorder = Recorder(
        parts.learner.trained.plain(torch.float32), STILL, 1, torch.float32, threads=parts.learner.trained.threads
    )
    gradients = []
    for batch in batches.values():
        update(recorder, batch, advantages, cfg)
        gradients.append(recorder.gradient)
    difference = float((gradients[0] - gradients[1]).norm() / gradients[1].norm())
    assert difference < 1e-4, f"the gradients differ by {difference:.2e}"
    return difference


def best_seconds(
    learner: TrainedModel, batches: dict[str, Batch], advantages: np.ndarray, cfg: Config, repeats: int
) -> dict[str, tuple[float, int]]:
    """For each batch the best seconds of an update and the tokens it computed; the batches take turns."""
    best = {name: (float("inf"), 0) for name in batches}
    for repetition in range(1 + repeats):
        for name, batch in batches.items():
            start = time.perf_counter()
            made = update(learner, batch, advantages, cfg)
            if repetition:
                best[name] = min(best[name], (time.perf_counter() - start, int(made["tokens_computed"])))
    return best


def main() -> None:
    """Print seconds and the ratio, in the trainer's own compute type and in float32."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3, help="repetitions; the best counts")
    parser.add_argument("--threads", type=int, default=0, help="0: as the trainer chooses")
    parser.add_argument("--dtypes", nargs="+", default=["auto", "float32"], choices=["auto", "float32", "bfloat16"])
    parser.add_argument("overrides", nargs="*", help="key=value of the recipe needle")
    args = parser.parse_args()
    disable_progress_bar()
    cfg = compose("needle", [*args.overrides, "trainer.device=cpu", f"trainer.threads={args.threads}"])
    parts = build(cfg, STILL, 1)
    batch, advantages = collect(cfg, parts)
    batches = {"trees": batch, "rows": row_by_row(batch)}
    print(f"{len(batch.sequences)} sequences, {sum(map(len, batch.sequences))} tokens, {batch.entries} trained on")
    print(f"gradients agree to {check_gradients(parts, batches, advantages, cfg):.1e} (float32)", flush=True)
    for name in args.dtypes:
        dtype = pick_dtype(name, "cpu")
        learner = TrainedModel(
            parts.learner.trained.plain(torch.float32), STILL, 1, dtype, threads=parts.learner.trained.threads
        )
        found = best_seconds(learner, batches, advantages, cfg, args.repeats)
        (fast, few), (slow, many) = found["trees"], found["rows"]
        verdict = "ok" if slow >= TARGET * fast else "MISSED"
        print(
            f"{str(dtype)[6:]:<9} {learner.threads} thr  trees {fast:.2f} s ({few} tokens)  rows {slow:.2f} s "
            f"({many} tokens)  {slow / fast:.2f}× (≥ {TARGET:g}× {verdict})",
            flush=True,
        )


if __name__ == "__main__":
    main()
