"""The RL step, and the state that a run carries from step to step."""

from __future__ import annotations

import asyncio
import resource
import time
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch

from recollect.algos.advantage import ADVANTAGES
from recollect.algos.batch import build_batch, fidelity
from recollect.config import Config
from recollect.data.tasks import TaskStream
from recollect.rollout import Collector, failures, first_failure
from recollect.run import Run
from recollect.train.learner import Learner
from recollect.train.setup import Parts
from recollect.train.update import policy_update
from recollect.types import Group, Sampling


class TooManyFailures(RuntimeError):
    """A step in which most trajectories failed; the message names what failed."""


@dataclass
class Progress:
    """What a checkpoint remembers of the run beside weights and optimizer."""

    step: int = 0  # RL steps done
    held_out: dict[str, float | None] = field(default_factory=lambda: {"base": None, "sft": None, "rl": None})
    seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("total", "sft", "rollout", "update", "eval"), 0.0)
    )
    trained_tokens: int = 0
    sampled_tokens: int = 0  # trained tokens that are the policy's own sampled ids
    metrics_size: int = 0

    def state(self) -> dict[str, Any]:
        return asdict(self)


class Reinforce:
    """Collect, estimate, update, sync, log."""

    def __init__(self, cfg: Config, run: Run, parts: Parts, stream: TaskStream, progress: Progress) -> None:
        self.cfg, self.run, self.parts, self.stream, self.progress = cfg, run, parts, stream, progress
        self.collector = Collector(cfg, parts.roles())
        self.reference: Learner | None = None
        rollout = cfg.actor_rollout_ref.rollout
        self.sampling = Sampling(
            rollout.temperature,
            rollout.top_p,
            rollout.top_k,
            cfg.data.max_response_length,
            seed=cfg.trainer.seed,
        )

    def step(self) -> dict[str, float]:
        """One whole step; returns its row of metrics."""
        cfg, progress, actor = self.cfg, self.progress, self.cfg.actor_rollout_ref.actor
        start = time.monotonic()
        tasks, n = self.stream.take(progress.step), cfg.actor_rollout_ref.rollout.n
        groups = asyncio.run(self.collector.collect(tasks, n, self.sampling, f"step-{progress.step}"))
        self._stop_if_broken(groups)
        collected = time.monotonic()
        batch, rewards_N, groups_N = build_batch(groups)
        use_std = cfg.algorithm.norm_adv_by_std_in_grpo and cfg.algorithm.grpo_use_adv
        scores = torch.from_numpy(rewards_N)  # one entry for each trajectory: enough for advantages of trajectories
        estimate = ADVANTAGES[cfg.algorithm.adv_estimator]
        advantages, _ = estimate(
            scores, None, torch.ones_like(scores), torch.arange(len(scores)), groups_N, use_std=use_std
        )
        advantages_N = advantages.numpy()
        budget = cfg.actor_rollout_ref.ref.log_prob_max_token_len_per_gpu
        seed = (cfg.trainer.seed, progress.step)
        made = policy_update(self.parts.learner, self.reference, batch, advantages_N, actor, budget, seed)
        trained, sampled = fidelity(groups, self.parts.engine.version)
        self.parts.sync(progress.step + 1)
        updated = time.monotonic()

        progress.step += 1
        progress.trained_tokens += trained
        progress.sampled_tokens += sampled
        progress.seconds["rollout"] += collected - start
        progress.seconds["update"] += updated - collected
        row = {"step": float(progress.step), **step_metrics(groups, rewards_N, made)}
        row |= {
            "time/rollout": collected - start,
            "time/update": updated - collected,
            "time/total": updated - start,
        }
        row["tokens_per_second"] = row["rollout/tokens"] / (updated - start)
        self.run.save_trajectories(f"step-{progress.step:06d}", groups)
        self.run.log(row | {"step": progress.step})
        return row

    def _stop_if_broken(self, groups: list[Group]) -> None:
        count, total = sum(failures(groups).values()), sum(len(g.trajectories) for g in groups)
        if count > self.cfg.agent.max_failure_rate * total or count == total:
            step = self.progress.step + 1
            raise TooManyFailures(
                f"{count} of {total} trajectories failed in step {step}; most often {first_failure(groups)}"
            )


def step_metrics(groups: list[Group], rewards_N: np.ndarray, made: dict[str, float]) -> dict[str, float]:
    """The metrics of a step, but for its times."""
    trajectories = [t for g in groups for t in g.trajectories]
    completions = [turn.completion for t in trajectories for turn in t.turns]
    failed = failures(groups)
    flat = sum(len({t.reward for t in g.trajectories if t.valid}) <= 1 for g in groups)
    return {
        "reward/mean": float(rewards_N.mean()),
        "reward/std": float(rewards_N.std()),
        "reward/min": float(rewards_N.min()),
        "reward/max": float(rewards_N.max()),
        "actor/policy_loss": made.get("policy_loss", 0.0),
        "actor/kl": made.get("kl", 0.0),
        "actor/entropy": made.get("entropy", 0.0),
        "actor/grad_norm": made.get("grad_norm", 0.0),
        "actor/lr": made.get("lr", 0.0),
        "actor/clip_fraction": made.get("clipped", 0.0),
        "actor/logprob_drift": made.get("drift", 0.0),
        "actor/tokens_computed": made.get("tokens_computed", 0.0) * made.get("updates", 0.0),
        "actor/skipped_updates": made.get("skipped_updates", 0.0),
        "rollout/turns": float(np.mean([len(t.turns) for t in trajectories])),
        "rollout/tokens": float(sum(len(c.ids) for c in completions)),
        "rollout/cut": float(np.mean([c.stop == "length" for c in completions])) if completions else 0.0,
        "rollout/failures": float(sum(failed.values())),
        **{f"rollout/failures/{kind}": float(count) for kind, count in sorted(failed.items())},
        "rollout/groups_without_signal": flat / len(groups),
        "memory/resident_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
