"""A whole run of `recollect train`: base evaluation, SFT if asked, RL, final evaluation, report; resumable anywhere."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from recollect.agents.progress import shown
from recollect.agents.rollout import Collector
from recollect.algos.chosen import check_algorithm, chosen_estimator
from recollect.config import Config
from recollect.config.roles import who_plays
from recollect.eval.accuracy import accuracy
from recollect.eval.evaluate import validation_row
from recollect.eval.phase_scores import task_scores
from recollect.eval.run_report import write_report
from recollect.models.checkpoints import pin_models
from recollect.policies.endpoint import EndpointGone
from recollect.rewards.before_run import check_reward
from recollect.runs.directory import RunDirectory
from recollect.runs.trackers.chosen_trackers import trackers_of
from recollect.runs.trackers.follow import tracking
from recollect.runtime.console import Console, sparkline
from recollect.runtime.garbage import leaving_the_old
from recollect.runtime.threads import reminding
from recollect.samplers.bindings import RoleBinder
from recollect.sources.task_stream import TaskStream, held_out
from recollect.training import checkpoint
from recollect.training.finished import finished
from recollect.training.interrupt import Interrupted, StopRequest, interruptible
from recollect.training.resume import BACK, keeps_first, named_start, needs_reference
from recollect.training.rl.advice import Advice
from recollect.training.rl.gather import Gatherer
from recollect.training.rl.metrics import memory_row
from recollect.training.rl.offline import OfflineStream, check_ids, imitation, read_offline
from recollect.training.rl.overlap import sampling_ahead
from recollect.training.rl.started import Started, read_started, write_started
from recollect.training.rl.step import Progress, Reinforce
from recollect.training.rl.validate import check_validation, final_evaluation, judge, keep_best, validate
from recollect.training.setup import TrainedPolicy, build
from recollect.training.sft import Supervised
from recollect.training.sft.sources import check_source, held_out_sequences
from recollect.types import BadInput

REMIND_S = 120.0  # after which people are told that a checkpoint is still being written, and again
OnStep = Callable[[dict[str, Any]], bool | None]


class TrainRun:
    """One run, from wherever its directory stands to its report."""

    def __init__(self, cfg: Config, console: Console, on_step: OnStep | None = None) -> None:
        """``on_step`` is called with the metrics of each step; False ends the run after it."""
        self.cfg, self.console, self.on_step = cfg, console, on_step
        self.run = RunDirectory.claim(cfg)
        try:
            self._make()
        except BaseException:
            self.run.release()
            raise

    def _make(self) -> None:
        """Everything that the run works with; what cannot work is refused before anything is written."""
        cfg, console = self.cfg, self.console
        check_algorithm(cfg)
        pin_models(cfg, console.say)
        for line in who_plays(cfg):
            console.say(line)
        trackers_of(cfg.trainer.logger, console.warn)
        console.brief = "console" not in cfg.trainer.logger
        self.offline = read_offline(cfg, console.say) if cfg.data.offline_files else None
        offline = self.offline
        stream = TaskStream(cfg, console.say) if offline is None else OfflineStream(cfg, offline)
        self.val_tasks = held_out(cfg)
        self.total = cfg.trainer.total_training_steps = stream.steps()
        check_validation(cfg, self.val_tasks)
        questions = [t.question for t in [*stream.take(0), *stream.rows, *self.val_tasks]]
        longest = max(questions, key=len, default="")
        self._check(stream)
        policy = build(cfg, cfg.actor_rollout_ref.actor.optim, self.total, longest, console.warn, console.say)
        if policy.learner.facts.note:
            console.say(policy.learner.facts.note)
        if offline is not None:
            check_ids(offline, policy.learner.facts.vocabulary, policy.renderer.patches is not None)
        self.roles = RoleBinder(cfg, policy.binding, longest, console.say).make()
        try:
            self._prepare(policy, stream)
        except BaseException:
            self.roles.close()
            raise

    def _check(self, stream: TaskStream | OfflineStream) -> None:
        """Refuse what would fail in the middle: a reward that asks for what no task has, nothing to imitate."""
        played = [] if self.offline is not None else [*stream.take(0), *stream.rows]
        if tasks := [*played, *self.val_tasks]:
            check_reward(self.cfg, tasks, self.console.say)
        run = RunDirectory.of(self.cfg)
        begun = [] if run.moves_aside(self.cfg) else checkpoint.names(run.path / "checkpoints", "step")
        if self.cfg.sft.steps > 0 and self.offline is None and not begun:  # what was imitated may be gone by now
            check_source(self.cfg)

    def _prepare(self, policy: TrainedPolicy, stream: TaskStream | OfflineStream) -> None:
        cfg, console = self.cfg, self.console
        collector = Collector(cfg, self.roles.bindings)  # finds agent and reward before anything is written
        collector.warn = console.warn
        needed = chosen_estimator(cfg.algorithm.adv_estimator).needs_critic
        self.critic = policy.learner.make_critic(self.total) if needed else None
        self.start = named_start(cfg, policy.learner, self.critic, self.total, console.warn)
        self.run.open(cfg, console.say)
        self.policy, self.collector = policy, collector
        self.progress = Progress()
        self.advice = Advice(cfg, console)
        source = stream if isinstance(stream, OfflineStream) else Gatherer(cfg, stream, collector)
        self.ahead = None if isinstance(source, OfflineStream) else sampling_ahead(cfg, source, policy, self.total)
        given = self.progress, self.critic, self.roles
        self.rl = Reinforce(cfg, self.run, policy, self.ahead or source, *given)
        self.folder = self.run.path / "checkpoints"
        self.began = time.monotonic()
        self.stop = StopRequest()

    def fit(self) -> dict[str, Any]:
        """Do what is left of the run and return its report."""
        try:
            with leaving_the_old():
                return self._fit()
        finally:
            if self.ahead is not None:
                self.ahead.close()
            asyncio.run(self.collector.close())
            self.roles.close()
            self.policy.close()
            self.run.release()

    def _fit(self) -> dict[str, Any]:
        if self.cfg.trainer.val_only:
            return self._only_validate()
        if self.start is None and (done := finished(self.run, self.total, self.console)) is not None:
            self.console.say(f"{self.run.path} is complete; this is its report")
            return done
        resumed = self._resume()
        with tracking(self.cfg, self.run, self.console):
            with interruptible(self.console, self.stop, "step"):
                if not resumed:
                    self._before_rl()
                self._keep_reference(resumed)
                self.policy.sync(self.progress.step)
                self._reinforce()
            return self._finish()

    # ---- phases ----

    def _before_rl(self) -> None:
        cfg, progress, improved = self.cfg, self.progress, False
        self.policy.sync(0)
        if cfg.trainer.val_before_train and self.val_tasks:
            progress.held_out["base"], improved = self._validate("base", judged=cfg.sft.steps == 0)
        if cfg.sft.steps > 0:
            learner, renderer = self.policy.learner.with_optimizer(cfg.sft.optim, cfg.sft.steps), self.policy.renderer
            batches = imitation(cfg, self.offline, renderer) if self.offline is not None else None
            unseen = held_out_sequences(cfg, renderer, learner.facts.window) if self.offline is None else []
            supervised = Supervised(cfg, self.run, self.console, learner, renderer, batches, unseen)
            supervised.saves = cfg.trainer.save_freq >= 0
            supervised.fit(supervised.resume(), lambda: self.stop.made)
            if self.stop.made:
                raise Interrupted(self._left())
            progress.seconds["sft"] += supervised.seconds
            self.policy.sync(0)
            if self.val_tasks and cfg.trainer.test_freq >= 0:
                progress.held_out["sft"], improved = self._validate("sft")
        only_at_the_end = cfg.trainer.save_freq == 0 and cfg.sft.steps == 0 and not keeps_first(cfg)
        if improved or self.stop.made or not only_at_the_end:
            self._save()
        if self.stop.made:
            raise Interrupted(self._left())

    def _keep_reference(self, resumed: bool) -> None:
        """With a KL term, the weights that RL starts from stay as the reference policy."""
        cfg = self.cfg
        if not needs_reference(cfg):
            return
        self.rl.reference = self.policy.learner.keep_reference()
        if resumed and self.progress.step > 0 and keeps_first(cfg):
            self.rl.reference.load_weights(self.folder / "step-0")

    def _reinforce(self) -> None:
        cfg, progress = self.cfg, self.progress
        total = self.total
        rewards = [r["reward/mean"] for r in self.run.metrics() if "reward/mean" in r]
        waits = lambda: self.ahead is None or self.ahead.waiting
        with self.console.progress("RL step", total, progress.step) as advance, shown(self.collector, advance, waits):
            self.rl.show = advance.within
            while progress.step < total and not progress.stopped:
                row = self._step()
                self.advice.look(row)
                rewards.append(row["reward/mean"])
                advance(
                    f"reward {rewards[-1]:.3f} {sparkline(rewards)}  rollout {row['time/rollout']:.1f} s "
                    f"({row['tokens_per_second/rollout']:.0f} tok/s)  update {row['time/update']:.1f} s"
                )
                if self.on_step is not None and self.on_step(dict(row)) is False and progress.step < total:
                    progress.stopped = "on_step said so"
                last, improved = progress.step == total, False
                due = _due(progress.step, cfg.trainer.test_freq) and not last  # the final evaluation follows the last
                if self.val_tasks and (due or (last and cfg.trainer.best_metric)):
                    _, improved = self._validate("rl")
                ending = last or bool(progress.stopped) or self.stop.made
                if _due(progress.step, cfg.trainer.save_freq) or ending or improved:
                    self._save()
                if self.stop.made:
                    raise Interrupted(self._left())
        if self.ahead is not None:
            self.ahead.finish(progress.step)
        if progress.stopped:
            self.console.say(f"stopped early at step {progress.step}: {progress.stopped}")

    def _step(self) -> dict[str, float]:
        """A step of RL; when an endpoint is gone for good, the run is saved as it was before the step."""
        try:
            return self.rl.step()
        except EndpointGone as gone:
            raise self._gone(gone) from None

    def _settled(self) -> Started:
        """The batches that were sampled ahead, when nothing is under way any more."""
        try:
            return {} if self.ahead is None else self.ahead.settled()
        except EndpointGone as gone:
            raise self._gone(gone) from None

    def _gone(self, gone: EndpointGone) -> EndpointGone:
        """The end of a run whose endpoint is gone; it is saved, unless the weights that sampled are gone as well."""
        lost = self.progress.step if self.ahead is None else self.ahead.sampling
        self.run.save_trajectories(f"lost-{lost + 1:06d}", gone.groups)
        at = "the same command goes on from the newest checkpoint"
        if self.ahead is None or not self.ahead.overlaps:
            self._save()
            at = f"saved at step {self.progress.step}, the same command goes on"
        return EndpointGone(f"{gone}; {self._left() or at}")

    def _finish(self) -> dict[str, Any]:
        cfg, progress = self.cfg, self.progress
        start = time.monotonic()
        never = cfg.trainer.test_freq < 0
        lengths, groups, own = ([], [], []) if never else final_evaluation(self.collector, self.val_tasks, self.console)
        row = validation_row(own)
        if own:
            last = "rl" if self.total else "base"
            progress.held_out[last], progress.scores[last] = accuracy(own).accuracy, task_scores(own)
            timed = {"time/eval": time.monotonic() - start, **memory_row()}
            self.run.log({"step": progress.step, **row, **timed})
            self.run.save_trajectories("evaluation", groups)
        progress.seconds["eval"] += time.monotonic() - start
        progress.seconds["total"] += time.monotonic() - self.began
        self.run.write_json("fidelity.json", progress.fidelity())
        others = self.roles.hashes()
        changed = [role for role, found in others.items() if found.get("before") != found.get("after")]
        assert not changed, f"the frozen weights of {changed[0]} have changed"
        mine = self.policy.sampler.weights_digest() if cfg.roles else None  # as a later stage will load them
        return write_report(self.run, cfg, progress, lengths, groups, row, others=others, weights=mine)

    def _only_validate(self) -> dict[str, Any]:
        """trainer.val_only: measure the weights as they are; nothing of the run itself changes."""
        progress = self.progress
        self._load_progress()
        self.policy.sync(progress.step)
        start = time.monotonic()
        title = f"after step {progress.step}" if progress.step else "before training"
        groups, row = validate(self.collector, self.val_tasks, self.console, title)
        progress.held_out = {"base": None, "sft": None, "rl": None}
        last = "rl" if progress.step else "base"
        progress.held_out[last], progress.scores = accuracy(groups).accuracy, {last: task_scores(groups)}
        progress.seconds = dict.fromkeys(progress.seconds, 0.0)
        progress.seconds["eval"] = progress.seconds["total"] = time.monotonic() - start
        rows = self.run.path / "validation.jsonl"
        self.run.log({"step": progress.step, "phase": "val_only", **row}, rows)
        with tracking(self.cfg, self.run, self.console, rows):
            return write_report(self.run, self.cfg, progress, [], groups, row, name="validation")

    # ---- helpers ----

    def _validate(self, phase: str, judged: bool = True) -> tuple[float, bool]:
        """Held-out success now, and whether trainer.best_metric was never better."""
        trainer, progress = self.cfg.trainer, self.progress
        title = {"base": "before training", "sft": "after SFT"}.get(phase, f"after step {progress.step}")
        self._settled()
        if self.ahead is not None:
            self.ahead.catch_up(progress.step)
        groups, row = validate(self.collector, self.val_tasks, self.console, title)
        progress.seconds["eval"] += row["time/eval"]
        if phase in ("base", "sft"):
            progress.scores[phase] = task_scores(groups)
        self.run.log({"step": progress.step, "phase": phase, **row})
        improved = judged and judge(progress, trainer.best_metric, trainer.patience, row)
        return accuracy(groups).accuracy, improved

    def _save(self) -> None:
        """Write a checkpoint, unless trainer.save_freq=-1 says never."""
        cfg, progress = self.cfg, self.progress
        if cfg.trainer.save_freq < 0:
            return
        progress.metrics_size = self.run.metrics_size()
        now = time.monotonic()
        progress.seconds["total"] += now - self.began
        self.began = now
        started = {} if progress.stopped else self._settled()
        given = self.policy.learner, self.policy.renderer, progress.state(), self.critic
        more = lambda folder: write_started(folder, started)
        with reminding(f"writing a checkpoint to {self.folder}", self.console.warn, REMIND_S):
            checkpoint.save(self.folder, f"step-{progress.step}", *given, more)
        keep_best(self.folder, progress)
        keep_first = ("step-0",) if keeps_first(cfg) else ()
        checkpoint.prune(self.folder, "step", cfg.trainer.max_ckpt_to_keep, keep_first)
        checkpoint.prune(self.folder, "sft", 0)
        self.run.write_json("fidelity.json", progress.fidelity())

    def _left(self) -> str:
        """The message for a run that saves nothing."""
        never = self.cfg.trainer.save_freq < 0
        return "trainer.save_freq=-1 saves nothing, so the same command starts anew" if never else ""

    def _load_progress(self) -> bool:
        """Weights, optimizer and progress of the checkpoint that the run goes on from; False when there is none."""
        if self.start is not None:
            state: dict[str, Any] | None = self.start.state
        else:
            given = self.policy.learner, self.console.warn, self.critic
            state = checkpoint.load_newest(self.folder, "step", *given, needed=checkpoint.NEEDED)
        if state is None and checkpoint.names(self.folder, "step"):
            raise BadInput(f"no checkpoint of {self.run.path} can be read; move the directory away to start afresh")
        self.progress.restore(state or {})
        if self.ahead is not None and state is not None and not (self.start is not None and self.start.foreign):
            path = self.start.path if self.start is not None else self.folder / f"step-{self.progress.step}"
            self.ahead.ready = read_started(path, self.progress.step)
        return state is not None

    def _resume(self) -> bool:
        progress = self.progress
        if not self._load_progress():
            if not checkpoint.names(self.folder, "sft"):
                self.run.truncate_metrics(0, self.console.warn)
            return False
        self.run.truncate_metrics(progress.metrics_size, self.console.warn)
        if self.start is not None and self.start.foreign:
            first = self.start.path.parent / "step-0"
            if keeps_first(self.cfg) and progress.step:
                checkpoint.link(first, self.folder / "step-0")
            self._save()
            self.console.say(f"going on from {self.start.path} at step {progress.step}")
        elif self.start is not None:
            checkpoint.drop_after(self.folder, progress.step)
            self.run.write_json(BACK, {"from": str(self.start.path)})
            self.console.say(f"going back to {self.start.path} at step {progress.step}; later checkpoints are gone")
        elif progress.step:
            self.console.say(f"resuming {self.run.path} at step {progress.step}")
        keep_best(self.folder, progress)
        return True


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
