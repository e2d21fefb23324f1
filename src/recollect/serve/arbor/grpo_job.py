"""A training job: the run of one model, whose groups a client posts round by round."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from recollect.chat import Renderer
from recollect.config import Config
from recollect.models.load import load_renderer
from recollect.models.starting_model import starting_model
from recollect.runs.directory import RunDirectory
from recollect.serve.arbor.job_files import FAILED, RUNNING, SUCCEEDED, JobFiles, JobRecord
from recollect.serve.arbor.job_settings import shaping
from recollect.serve.arbor.payloads import batch_number, posted_group
from recollect.serve.arbor.posted_round import PostedRound, RoundReader, fill_logprobs
from recollect.serve.arbor.rounds import Rounds
from recollect.serve.arbor.sampled import FILE, SampledCompletion, SampledStore
from recollect.serve.protocol import BadRequest, clipped
from recollect.serve.responses import visible
from recollect.training import checkpoint
from recollect.training.learner.from_config import make_learner, make_sampler
from recollect.training.resume import keeps_first, needs_reference
from recollect.training.rl.step import Progress, Reinforce
from recollect.training.setup import TrainedPolicy
from recollect.types import BadInput, Completion, Message, Sampling

STATE = "posted"  # the key of a checkpoint's state that holds the job's own
LEFT_OUT = ("too_long", "other_temperature", "ambiguous")  # why completions are not trained that a client may wonder at
LONGEST_METADATA = 16_384  # characters of JSON that a checkpoint carries for its client
NAME = re.compile(r"(?!step-|sft-)[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class GrpoJob:
    """One job while its model is loaded."""

    def __init__(self, record: JobRecord, cfg: Config, warn: Callable[[str], None]) -> None:
        self.record, self.cfg, self.warn = record, cfg, warn
        self.run = RunDirectory.start(cfg)
        try:
            self._load()
        except BaseException:
            self.run.release()
            raise

    def _load(self) -> None:
        cfg, request = self.cfg, self.record.request
        self.files = JobFiles(self.run.path)
        self.policy = make_policy(cfg, self.warn)
        self.progress = Progress()
        self.rounds = Rounds(request.generations)
        self.counts: Counter[str] = Counter()
        self.store = SampledStore.read(self.run.path / FILE)
        self.training = False
        self.saved = -1  # the step of the newest checkpoint
        window = min(self.policy.sampler.window, request.window or self.policy.sampler.window)
        temperature = cfg.actor_rollout_ref.rollout.temperature
        self.reader = RoundReader(self.policy.renderer, shaping(request), temperature, window)
        self.rl = Reinforce(cfg, self.run, self.policy, PostedRound(), self.progress)
        self.folder = self.run.path / "checkpoints"
        self._go_on()

    def _go_on(self) -> None:
        """Start, or go on from the newest checkpoint and with the round that was open."""
        learner, first = self.policy.learner, not checkpoint.names(self.folder, "step")
        if needs_reference(self.cfg):
            self.rl.reference = learner.keep_reference()
            if not first and keeps_first(self.cfg):
                self.rl.reference.load_weights(self.folder / "step-0")
        if first:
            self.policy.sync(0)
            self._save()
        else:
            self._back()
            self._restore_round()
        self._note()

    def _back(self) -> None:
        """Take the newest checkpoint."""
        state = checkpoint.load_newest(
            self.folder, "step", self.policy.learner, self.warn, needed=(*checkpoint.NEEDED, STATE)
        )
        if state is None:
            raise BadInput(f"no checkpoint of {self.run.path} can be read; move the folder away")
        own = state.pop(STATE)
        self.progress.restore(state)
        self.counts = Counter(own["counts"])
        self.rounds.restore({"number": own["round"], "first": own["first"]})
        self.run.truncate_metrics(self.progress.metrics_size, self.warn)
        self.policy.sync(self.progress.step)

    def _restore_round(self) -> None:
        number, size = self.rounds.state.number, self.rounds.size
        stored = self.files.read_round()
        if stored is not None and stored.get("number") == number:
            self.rounds.restore(stored)
        self.rounds.state.during = sum(row.round == number and row.turn > 0 for row in self.store.rows)
        for row in self.files.posted():
            group = posted_group(row, size, self.policy.renderer)
            if row["round"] == number:
                self.rounds.post(row["batch_id"], group)
            elif row["round"] == number - 1 and row["batch_id"] is not None:
                self.rounds.earlier[row["batch_id"]] = group.digest

    # ---- what the client does ----

    @property
    def renderer(self) -> Renderer:
        return self.policy.renderer

    def note(self, messages: tuple[Message, ...], prompt: list[int], sampling: Sampling, done: Completion) -> None:
        """Keep a completion that was sampled for the client."""
        self.rounds.note_sampled()
        state = self.rounds.state
        text, turn = visible(done.text, sampling.stop), state.during if state.opened else 0
        self.store.add(SampledCompletion(messages, text, tuple(prompt), done, sampling.temperature, state.number, turn))

    def ask(self) -> None:
        """The client asks what is pending."""
        self._refuse_ended()
        self.rounds.ask()
        self.files.write_round(self.rounds.state.stored())

    def post(self, body: Mapping[str, Any]) -> bool:
        """Take a group of the client's; True when the round is complete and to be trained."""
        self._refuse_ended()
        group, batch = posted_group(body, self.rounds.size, self.renderer), batch_number(body)
        if not self.rounds.post(batch, group):
            return self.rounds.complete
        self.files.add_posted(self.rounds.state.number, list(self.rounds.posted)[-1], body)
        self.files.write_round(self.rounds.state.stored())
        return self.rounds.complete

    def train(self) -> None:
        """Train on the round, save, and open the next one. If it fails, the weights go back to where they were."""
        before, posted = self.rounds.state, self.rounds.posted
        try:
            self._train()
        except Exception:
            self._back()
            self.rounds.state, self.rounds.posted = before, posted
            self.rounds.close()  # its ids are never pending again
            self._note()
            raise

    def _train(self) -> None:
        made = self.reader.read(self.rounds, self.store)
        if made.groups:
            fill_logprobs(made, self.policy.learner)
            self.rl.gatherer = made
            self.rl.step()
        self.counts += made.counts
        reported = {k: v for group in self.rounds.posted.values() for k, v in group.metrics.items()}
        if reported:
            self.run.log({"step": self.progress.step, **{f"client/{k}": v for k, v in reported.items()}})
        number = self.rounds.state.number
        self.rounds.close()
        if self._due():
            self._save()
        self.store.spend(made.used, number)
        self.files.keep_posted(number)
        self.run.write_json("fidelity.json", self.fidelity())
        self._note()
        if unsampled := made.counts["tokenised"]:
            self.warn(f"{self.record.id}: {unsampled} completions of round {number} were not sampled here; tokenised")
        if lost := [f"{made.counts[reason]} {reason}" for reason in LEFT_OUT if made.counts[reason]]:
            self.warn(f"{self.record.id}: completions of round {number} were left out: {', '.join(lost)}")

    def _note(self) -> None:
        """Keep what is answered about the job, also when its model is not loaded any more."""
        record = self.record
        record.step, record.fidelity, record.folder = self.progress.step, self.fidelity(), str(self.run.path)
        self.files.write(record)

    def _due(self) -> bool:
        every = self.cfg.trainer.save_freq
        return every <= 1 or self.rounds.state.number % every == 0

    def _save(self) -> Path:
        """Write a checkpoint of this step."""
        self.progress.metrics_size = self.run.metrics_size()
        state = self.rounds.state
        own = {"round": state.number, "first": state.first, "counts": dict(self.counts)}
        given = self.policy.learner, self.renderer, {**self.progress.state(), STATE: own}
        path = checkpoint.save(self.folder, f"step-{self.progress.step}", *given)
        keep_first = ("step-0",) if keeps_first(self.cfg) else ()
        checkpoint.prune(self.folder, "step", self.cfg.trainer.max_ckpt_to_keep, keep_first)
        self.saved = self.progress.step
        return path

    def keep_checkpoint(self, name: Any, metadata: Any) -> None:
        """Keep the weights as they are now under a name; an earlier one of the name is replaced."""
        self._refuse_ended()
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise BadRequest(
                "checkpoint_name must be letters, digits, . _ and -, and begin with none of step- and sft-",
                "checkpoint_name",
            )
        if metadata is not None and not isinstance(metadata, Mapping):
            raise BadRequest("metadata must be an object", "metadata")
        if len(json.dumps(metadata)) > LONGEST_METADATA:  # every answer about the job repeats it
            raise BadRequest(f"metadata must have at most {LONGEST_METADATA} characters of JSON", "metadata")
        saved = self.folder / f"step-{self.progress.step}"
        checkpoint.link(saved if self.saved == self.progress.step else self._save(), self.folder / name)
        self.record.checkpoints[name] = {
            "checkpoint_name": name,
            "checkpoint_dir": str((self.folder / name).absolute()),
            "global_step": self.progress.step,
            "requested": True,
            "metadata": metadata,
            "timestamp": time.time(),
        }
        self.record.last_checkpoint = name
        self.files.write(self.record)

    def end(self, status: str = SUCCEEDED, reason: str = "") -> None:
        """Save the weights and let nobody train them any more; they stay loaded for sampling."""
        if self.record.status != RUNNING:
            return
        if status != FAILED:
            self._save()
        self.record.status, self.record.reason = status, reason
        self.files.write(self.record)
        self.run.release()

    # ---- what the client is told ----

    def answer(self) -> dict[str, Any]:
        """What every call is answered with."""
        open_ = self.record.status == RUNNING
        return self.record.answer() | {
            "status": "training" if open_ and self.training else self.record.status,
            "pending_batch_ids": self.rounds.pending() if open_ and not self.training else [],
        }

    def fidelity(self) -> dict[str, Any]:
        """How many trained tokens are the very ids that this server sampled, and what became of completions."""
        tokens = {name: self.counts[name] for name in ("trained_tokens", "matched_tokens")}
        share = tokens["matched_tokens"] / tokens["trained_tokens"] if tokens["trained_tokens"] else None
        return {**tokens, "fidelity": share, "completions": {k: v for k, v in self.counts.items() if k not in tokens}}

    def _refuse_ended(self) -> None:
        if self.record.status != RUNNING:
            why = f" ({self.record.reason})" if self.record.reason else ""
            raise BadRequest(f"job {clipped(self.record.id)} has {self.record.status}{why}", "job_id", 409)


def make_policy(cfg: Config, warn: Callable[[str], None]) -> TrainedPolicy:
    """The learner of a configuration, a sampler of its weights and the renderer of its prompts."""
    steps = cfg.trainer.total_training_steps or 1
    with starting_model(cfg) as path:
        renderer = load_renderer(path, cfg.agent.template)
        learner = make_learner(cfg, path, cfg.actor_rollout_ref.actor.optim, steps, warn)
        return TrainedPolicy(renderer, learner, make_sampler(cfg, learner, path, renderer.decode))
