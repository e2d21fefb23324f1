"""The RL step, and the state that a run carries from step to step."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from recollect import config
from recollect.algos.control import KLControl
from recollect.config import Config
from recollect.packing.batch import Batch, build_batch, fidelity
from recollect.runs.directory import Run
from recollect.training.learner.critic import Critic
from recollect.training.learner.free_memory import is_scarce
from recollect.training.learner.learner import Learner
from recollect.training.rl.annotate import Annotations, Budgets, annotate, updates_of
from recollect.training.rl.estimate import estimate
from recollect.training.rl.gather import Gathers
from recollect.training.rl.metrics import role_tokens, step_metrics
from recollect.training.rl.update import policy_update
from recollect.training.setup import Parts
from recollect.training.step_progress import told
from recollect.types import BadInput


@dataclass
class Progress:
    """What a checkpoint remembers of the run beside weights and optimizer."""

    step: int = 0  # RL steps done
    batches: int = 0  # batches of tasks taken; more than steps with dynamic sampling
    kl_coef: float | None = None  # weight of the divergence in the reward; None: the configured one
    held_out: dict[str, float | None] = field(default_factory=lambda: {"base": None, "sft": None, "rl": None})
    seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("total", "sft", "rollout", "update", "eval"), 0.0)
    )
    trained_tokens: int = 0
    untrained_tokens: int = 0  # sampled by roles that are not trained
    sampled_tokens: int = 0  # trained tokens that are the policy's own sampled ids
    metrics_size: int = 0
    best: float | None = None  # the largest value of trainer.best_metric so far …
    best_step: int = 0  # … and the step that reached it
    stale: int = 0  # validations since then
    stopped: str = ""  # why the run ended before its last step

    def state(self) -> dict[str, Any]:
        return asdict(self)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what a checkpoint says; refuse what cannot be a run's progress."""
        kinds = {f.name: type(getattr(self, f.name)) for f in fields(self)}
        for name, value in state.items():
            kind = kinds.get(name, object)
            if (kind in (int, str, dict) and type(value) is not kind) or (kind is int and value < 0):
                raise BadInput(f"the checkpoint's trainer_state.json is damaged: {name}={value!r}")
            setattr(self, name, value)


def kl_control(cfg: config.KLControl, coef: float | None) -> KLControl:
    """The control of the divergence's weight, at its configured start or where an earlier step left it."""
    start = cfg.kl_coef if coef is None or cfg.type == "fixed" else coef
    return KLControl(start, cfg.type, cfg.target_kl, cfg.horizon)


class Reinforce:
    """Collect, annotate, estimate, update, sync, log."""

    def __init__(
        self,
        cfg: Config,
        run: Run,
        parts: Parts,
        gatherer: Gathers,
        progress: Progress,
        critic: Critic | None = None,
        warn: Callable[[str], None] = lambda message: None,
    ) -> None:
        self.cfg, self.run, self.parts, self.progress, self.critic = cfg, run, parts, progress, critic
        self.gatherer = gatherer
        self.budgets = Budgets.of(cfg, warn)
        self.reference: Learner | None = None
        self.free_others: Callable[[], None] = lambda: None  # the caches of models that are not trained
        self.show: Callable[[str], None] = lambda text: None  # told how far the step has come

    def step(self) -> dict[str, float]:
        """One whole step; returns its row of metrics."""
        cfg, progress, learner = self.cfg, self.progress, self.parts.learner
        seed = (cfg.trainer.seed, progress.step)
        control = kl_control(cfg.algorithm.kl_ctrl, progress.kl_coef)
        start = time.monotonic()
        made = self.gatherer.gather(progress.step, progress.batches)
        if cfg.actor_rollout_ref.rollout.free_cache_engine and is_scarce(learner.device):
            self.parts.engine.free()
            self.free_others()
        collected = time.monotonic()
        batch, trajectories = build_batch(made.groups)
        changed: dict[str, float] = {}
        if batch.entries:
            notes = self._annotate(batch)
            guess = estimate(cfg.algorithm, batch, trajectories, notes, control, made.greedy)
            changed |= guess.metrics
            warming = progress.step < cfg.trainer.critic_warmup
            learner.place = progress.step - cfg.trainer.critic_warmup  # all updates of a step have its learning rate
            if self.critic is not None and notes.values is not None:
                self.critic.learner.place = progress.step
                alone = warming and cfg.critic.model.share_actor  # a shared body is the policy, which stays as it is
                with told(self.show, "critic update", [self.critic.learner], self.critic.passes(batch)):
                    learned = self.critic.update(batch, guess.returns, notes.values, seed, head_only=alone)
                changed |= {f"critic/{name}": value for name, value in learned.items()}
            if not warming:
                given = notes, self.reference, seed, self.budgets
                with told(self.show, "policy update", [learner], updates_of(cfg, batch)):
                    changed |= policy_update(cfg, learner, batch, guess.advantages, *given)
        trained, sampled = fidelity(batch, trajectories, self.parts.engine.version)
        self.parts.sync(progress.step + 1)
        updated = time.monotonic()

        progress.step += 1
        progress.batches += made.batches
        progress.kl_coef = control.coef
        progress.trained_tokens += trained
        counts = role_tokens(made.groups)
        progress.untrained_tokens += sum(n for (_, kind), n in counts.items() if kind == "untrained")
        progress.sampled_tokens += sampled
        progress.seconds["rollout"] += collected - start
        progress.seconds["update"] += updated - collected
        row = {"step": float(progress.step), **step_metrics(made, changed, cfg.algorithm.group_by != "task")}
        row |= {
            "time/rollout": collected - start,
            "time/update": updated - collected,
            "time/total": updated - start,
        }
        row["tokens_per_second"] = row["rollout/tokens"] / (updated - start)
        self.run.save_trajectories(f"step-{progress.step:06d}", made.sampled)
        self.run.log(row | {"step": progress.step})
        return row

    def _annotate(self, batch: Batch) -> Annotations:
        critic = None if self.critic is None else self.critic.learner
        learners = self.parts.learner, self.reference, critic
        with told(self.show, "log-probabilities", learners, sum(x is not None for x in learners)):
            return annotate(self.cfg, self.parts.learner, self.reference, self.critic, batch, self.budgets)
