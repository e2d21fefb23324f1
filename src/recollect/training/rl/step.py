"""The RL step, and the state that a run carries from step to step."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Protocol

from recollect import config
from recollect.algos.control import KLController
from recollect.config import Config
from recollect.packing.batch import Batch, build_batch, fidelity
from recollect.runs.directory import RunDirectory
from recollect.samplers.sampler import SamplerStatistics
from recollect.training.learner.learner import PolicyTargets, ReferencePolicy, ValueLearner
from recollect.training.rl.annotate import Annotations, annotate, updates_of
from recollect.training.rl.estimate import estimate
from recollect.training.rl.gather import Gathered, GroupSource, check_versions
from recollect.training.rl.metrics import role_tokens, rollout_times, server_metrics, step_metrics
from recollect.training.setup import TrainedPolicy
from recollect.training.step_progress import phase_progress
from recollect.types import BadInput


@dataclass
class Progress:
    """What a checkpoint remembers of the run beside weights and optimizer."""

    step: int = 0  # RL steps done
    batches: int = 0  # batches of tasks taken; more than steps with dynamic sampling
    kl_coef: float | None = None  # weight of the divergence in the reward; None: the configured one
    held_out: dict[str, float | None] = field(default_factory=lambda: {"base": None, "sft": None, "rl": None})
    scores: dict[str, dict[str, float]] = field(default_factory=dict)  # of each held-out task, in each of these phases
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

    def fidelity(self) -> dict[str, Any]:
        """How many trained tokens there were, and how many of them are sampled ids."""
        share = self.sampled_tokens / self.trained_tokens if self.trained_tokens else None
        return {"trained_tokens": self.trained_tokens, "sampled_tokens": self.sampled_tokens, "fidelity": share}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over what a checkpoint says; refuse what cannot be a run's progress."""
        kinds = {f.name: type(getattr(self, f.name)) for f in fields(self)}
        for name, value in state.items():
            kind = kinds.get(name, object)
            if (kind in (int, str, dict) and type(value) is not kind) or (kind is int and value < 0):
                raise BadInput(f"the checkpoint's trainer_state.json is damaged: {name}={value!r}")
            setattr(self, name, value)


def kl_control(cfg: config.KLControl, coef: float | None) -> KLController:
    """The control of the divergence's weight, at its configured start or where an earlier step left it."""
    start = cfg.kl_coef if coef is None or cfg.type == "fixed" else coef
    return KLController(start, cfg.type, cfg.target_kl, cfg.horizon)


class SharesMemory(Protocol):
    """A sampler, or several, whose memory an update may use."""

    def free(self) -> None: ...

    def restore(self) -> None: ...


class Reinforce:
    """Collect, annotate, estimate, update, sync, log."""

    def __init__(
        self,
        cfg: Config,
        run: RunDirectory,
        policy: TrainedPolicy,
        gatherer: GroupSource,
        progress: Progress,
        critic: ValueLearner | None = None,
        others: SharesMemory | None = None,
    ) -> None:
        self.cfg, self.run, self.policy, self.progress, self.critic = cfg, run, policy, progress, critic
        self.gatherer = gatherer
        self.reference: ReferencePolicy | None = None
        self.samplers: list[SharesMemory] = [policy.sampler, *([] if others is None else [others])]
        self.show: Callable[[str], None] = lambda text: None  # told how far the step has come

    def step(self) -> dict[str, float]:
        """One whole step; returns its row of metrics."""
        cfg, progress, learner = self.cfg, self.progress, self.policy.learner
        seed = (cfg.trainer.seed, progress.step)
        control = kl_control(cfg.algorithm.kl_ctrl, progress.kl_coef)
        start, before = time.monotonic(), self.policy.sampler.statistics()
        made = self.gatherer.gather(progress.step, progress.batches)
        version = self._expected(made)
        lends = cfg.actor_rollout_ref.rollout.free_cache_engine and not made.goes_on and learner.short_of_memory()
        freed = self.samplers if lends else []
        for sampler in freed:
            sampler.free()
        collected = time.monotonic()
        batch, trajectories = build_batch(made.groups)
        changed: dict[str, float] = {}
        if batch.entries:
            annotations = self._annotate(batch, made.as_sampled)
            guess = estimate(cfg.algorithm, batch, trajectories, annotations, control, made.greedy)
            changed |= guess.metrics
            warming = progress.step < cfg.trainer.critic_warmup
            if self.critic is not None and annotations.values is not None:
                alone = warming and cfg.critic.model.share_actor  # a shared body is the policy, which stays as it is
                with phase_progress(self.show, "critic update", [self.critic], self.critic.updates(batch)):
                    learned = self.critic.update(batch, guess.returns, annotations.values, seed, alone, progress.step)
                changed |= {f"critic/{name}": value for name, value in learned.items()}
            if not warming:
                targets = PolicyTargets(guess.advantages, annotations.old, annotations.reference)
                place = progress.step - cfg.trainer.critic_warmup  # all updates of a step have its learning rate
                with phase_progress(self.show, "policy update", [learner], updates_of(cfg, batch)):
                    changed |= learner.update(batch, targets, self.reference, seed, place)
        trained, sampled = fidelity(batch, trajectories, version)
        for sampler in freed:
            sampler.restore()
        syncing = time.monotonic()
        if not made.goes_on:
            self.policy.sync(progress.step + 1)
        updated = time.monotonic()

        progress.step += 1
        progress.batches += made.batches
        progress.kl_coef = control.coef
        progress.trained_tokens += trained
        counts = role_tokens(made.groups)
        progress.untrained_tokens += sum(n for (_, kind), n in counts.items() if kind == "untrained")
        progress.sampled_tokens += sampled
        row = {"step": float(progress.step), **step_metrics(made, changed, cfg.algorithm.group_by != "task")}
        row |= self._times(made, before, (start, collected, syncing, updated), row["rollout/tokens"])
        if made.times:
            row["rollout/staleness"] = float(progress.step - 1 - version)
        progress.seconds["rollout"] += row["time/rollout"]
        progress.seconds["update"] += row["time/update"]
        self.run.save_trajectories(f"step-{progress.step:06d}", made.sampled)
        self.run.log(row | {"step": progress.step})
        return row

    def _expected(self, made: Gathered) -> int:
        """The version of the weights that a batch comes from; nothing of another is trained on."""
        version = self.policy.sampler.version if made.version is None else made.version
        if not (made.as_sampled or self.cfg.data.offline_files):  # whoever sampled those had weights of their own
            check_versions(made.groups, version)
        return version

    def _times(
        self, made: Gathered, before: SamplerStatistics, moments: tuple[float, float, float, float], tokens: float
    ) -> dict[str, float]:
        """Where the seconds of a step went. What was sampled before its step has times of its own."""
        start, collected, syncing, updated = moments
        after, rollout = self.policy.sampler.statistics(), collected - start
        row = {"time/rollout": rollout, "time/update": updated - collected, "time/total": updated - start}
        row |= rollout_times(before, after, made.waited, rollout)
        row |= {"time/sync": updated - syncing, **server_metrics(before, after), **made.times}
        row["tokens_per_second"] = tokens / (updated - start)
        row["tokens_per_second/rollout"] = tokens / row["time/rollout"]
        return row

    def _annotate(self, batch: Batch, as_sampled: bool) -> Annotations:
        asked = self.policy.learner, self.reference, self.critic
        with phase_progress(self.show, "log-probabilities", asked, sum(x is not None for x in asked)):
            return annotate(self.cfg, *asked, batch, as_sampled)
