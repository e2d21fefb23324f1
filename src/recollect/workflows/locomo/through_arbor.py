"""`recollect locomo --arbor URL`: GRPO through a server. It samples and trains; the agent and its reward run here."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from recollect.agents.rollout import Collector
from recollect.agents.session import Binding
from recollect.chat import Renderer
from recollect.config import Config
from recollect.config.aliases import sampling_seed
from recollect.data.questions import questions_of
from recollect.files.reading import read_json
from recollect.models.load import load_tokenizer
from recollect.models.starting_model import starting_model
from recollect.policies.arbor_job import ArborJob, JobEndpoint, PostedRow
from recollect.policies.endpoint import Patience
from recollect.runs.directory import RunDirectory
from recollect.runtime.console import Console
from recollect.sources.task_stream import TaskStream
from recollect.types import BadInput, Group, Sampling, Score
from recollect.workflows.locomo.arbor_settings import initialize_body

JOB = "arbor_job.json"
WRITTEN = ("recurrent", "notes")


def posted_groups(groups: Sequence[Group], endpoint: JobEndpoint) -> Iterator[list[PostedRow]]:
    """One group for every question: its answer from each attempt. Questions that an attempt lacks are left out."""
    for group in groups:
        valid = [t for t in group.trajectories if t.valid]
        if len(valid) < len(group.trajectories):
            continue
        for number in range(1, len(questions_of(group.task)) + 1):
            turns = [next(turn for turn in t.turns if turn.question == number) for t in valid]
            rewards = [_earned(t.score, number) for t in valid]
            yield [endpoint.row(turn.completion, reward) for turn, reward in zip(turns, rewards, strict=True)]


def _earned(score: Score | None, question: int) -> float:
    assert score is not None
    return score.questions[question] if len(score.questions) > question else score.total


class ArborTraining:
    """A training whose model is on a server."""

    def __init__(self, cfg: Config, url: str, console: Console) -> None:
        if cfg.conversation.memory in WRITTEN:
            kind = f"conversation.memory={cfg.conversation.memory}"
            raise BadInput(f"--arbor trains answers, and the model writes {kind} too; train that without --arbor")
        self.cfg, self.console = cfg, console
        wait = cfg.actor_rollout_ref.rollout.fixed_model_wait_s
        self.job = ArborJob(ArborJob.address(url), wait_s=wait, warn=console.warn)
        self.job.look(cfg.actor_rollout_ref.model.path)
        self.stream = TaskStream(cfg, console.say)
        self.run = RunDirectory.of(cfg)

    def fit(self) -> Mapping[str, Any]:
        """Train, and end the job; returns the server's last answer."""
        self.run = RunDirectory.start(self.cfg, self.console.say)
        try:
            done = self._begin()
            return self._train(done)
        finally:
            self.run.release()

    def _begin(self) -> int:
        """Begin a job, or go on with the one that this run left; returns the steps that were done."""
        place = self.run.path / JOB
        if place.is_file():
            known = read_json(place)
            if known.get("url") == self.job.url and self.job.take_up(str(known.get("job_id"))):
                done = int(self.job.answer.get("step", 0))
                self.console.say(f"going on with job {self.job.id} after step {done}")
                return done
            if self.job.finished(self.stream.steps()):
                self.console.say(f"job {self.job.id} is done already")
                return self.stream.steps()
            self.console.say(f"job {known.get('job_id')} cannot go on ({self._status()}); another one begins")
            self.job.id = ""
        self.run.truncate_metrics(0, self.console.warn)
        self.job.begin(initialize_body(self.cfg, self.stream.steps()))
        self.run.write_json(JOB, {"url": self.job.url, "job_id": self.job.id})
        self.console.say(f"job {self.job.id} at {self.job.url}")
        return 0

    def _status(self) -> str:
        return str(self.job.answer.get("status") or f"{self.job.url} does not know it")

    def _train(self, done: int) -> Mapping[str, Any]:
        cfg = self.cfg
        if self.job.finished(self.stream.steps()):
            return self.job.answer
        patience = Patience(wait_s=self.job.wait_s, concurrency=cfg.agent.max_concurrency)
        with starting_model(cfg, cfg.actor_rollout_ref.model.path) as found:
            renderer = Renderer(load_tokenizer(found, cfg.agent.template))
        endpoint = JobEndpoint(self.job, patience=patience)
        collector = Collector(cfg, {"*": Binding(endpoint, renderer, trainable=False)})
        collector.warn = self.console.warn
        waiting: deque[list[PostedRow]] = deque()
        try:
            for step in range(done, self.stream.steps()):
                self._step(step, collector, endpoint, waiting)
        finally:
            asyncio.run(collector.close())
            endpoint.close()
        self.job.end()
        return self.job.answer

    def _step(self, step: int, collector: Collector, endpoint: JobEndpoint, waiting: deque[list[PostedRow]]) -> None:
        """One round: ask, sample, ask again, and fill every pending id with a group."""
        cfg, began = self.cfg, time.monotonic()
        rollout = cfg.actor_rollout_ref.rollout
        most, seed = cfg.data.max_response_length, sampling_seed(cfg)
        sampling = Sampling(rollout.temperature, rollout.top_p, rollout.top_k, most, seed=seed)
        self.job.pending()
        groups = asyncio.run(collector.collect(self.stream.take(step), rollout.n, sampling, f"step-{step}"))
        made = list(posted_groups(groups, endpoint))
        if not made:
            raise BadInput(f"step {step + 1}: every group has an attempt that failed; the first: {_failure(groups)}")
        waiting.extend(made)
        for place, number in enumerate(self.job.pending()):
            self.job.post(number, waiting.popleft() if waiting else made[place % len(made)])
        endpoint.forget()
        valid = [t for g in groups for t in g.trajectories if t.valid]
        row: dict[str, Any] = {"step": step + 1, "reward/mean": sum(t.reward for t in valid) / max(1, len(valid))}
        row |= {"groups": len(made), "failed": sum(len(g.trajectories) for g in groups) - len(valid)}
        row |= {"time/step": time.monotonic() - began}
        fidelity = self.job.answer.get("fidelity")
        row |= {"fidelity": fidelity} if isinstance(fidelity, Mapping) else {}
        self.run.log(row)
        self.console.say(f"step {step + 1}/{self.stream.steps()}  reward {row['reward/mean']:.3f}  {len(made)} groups")


def _failure(groups: Sequence[Group]) -> str:
    return next(t.failure.message for g in groups for t in g.trajectories if t.failure is not None)


def trained_folder(answer: Mapping[str, Any]) -> Path | None:
    """Where the server keeps the weights, if that is on this machine."""
    named = (answer.get("checkpoints") or {}).get(answer.get("last_checkpoint") or "") or {}
    found = answer.get("folder") or named.get("checkpoint_dir")
    return Path(str(found)) if found and Path(str(found)).is_dir() else None
