"""Supervised training: on the scripted expert, on stored trajectories, or on conversations from files.

The loss is on sampled or assistant tokens only. Batch b depends on the configuration and b alone, so a killed run
resumes exactly.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from recollect.algos.batch import Batch
from recollect.algos.packed import Packed
from recollect.algos.samples import trajectory_samples
from recollect.chat import Renderer
from recollect.config import Config
from recollect.console import Console, sparkline
from recollect.data.files import read_rows
from recollect.data.made_up import made_up
from recollect.policies.scripted import Scripted
from recollect.rollout import Collector
from recollect.run import Run
from recollect.session import Binding
from recollect.train import checkpoint
from recollect.train.budget import Budget, run_with_budget
from recollect.train.learner import Learner
from recollect.train.skill import SkillBatches
from recollect.types import BadInput, Completion, Message, Sample, Sampling, Trajectory, Turn


class ExpertBatches:
    """The scripted expert plays the agent on training tasks; batch b uses tasks of its own."""

    def __init__(self, cfg: Config, renderer: Renderer) -> None:
        self.cfg, family = cfg, made_up(cfg)
        if family.expert is None:
            raise BadInput(f"sft.data=expert: data.made_up={cfg.data.made_up} has no scripted expert")
        self.collector = Collector(cfg, {"*": Binding(Scripted(renderer, family.expert), renderer)})
        self.tasks = max(1, cfg.sft.batch_size // (family.sections(cfg, 1) + 1))

    def __getitem__(self, index: int) -> list[Sample]:
        cfg = self.cfg
        first = 10**9 + index * self.tasks  # far from the tasks that RL takes
        tasks = [made_up(cfg).train(cfg, 10**9, first + i) for i in range(self.tasks)]
        groups = asyncio.run(self.collector.collect(tasks, 1, Sampling(max_tokens=512), "expert"))
        rows = [t for g in groups for t in g.trajectories]
        return [s for i, t in enumerate(rows) for s in trajectory_samples(t, i, i, supervised=True)]


class StoredBatches:
    """Sequences that are already there, shuffled anew each epoch by the seed."""

    def __init__(self, cfg: Config, samples: Sequence[Sample]) -> None:
        if not samples:
            raise BadInput(f"nothing to train on in sft.data={cfg.sft.data} with sft.min_reward={cfg.sft.min_reward}")
        self.cfg, self.samples = cfg, list(samples)

    def __getitem__(self, index: int) -> list[Sample]:
        size = min(self.cfg.sft.batch_size, len(self.samples))
        epoch, place = divmod(index, len(self.samples) // size)
        order = list(range(len(self.samples)))
        random.Random(f"sft:{self.cfg.trainer.seed}:{epoch}").shuffle(order)
        return [self.samples[i] for i in order[place * size : (place + 1) * size]]


def stored_samples(source: Path, min_reward: float) -> list[Sample]:
    """Training sequences of a run's stored trajectories that reached a reward."""
    samples: list[Sample] = []
    for i, row in enumerate(Run(source).trajectories()):
        if row["reward"] is None or row["reward"] < min_reward:
            continue
        turns = [
            Turn(
                turn["role"],
                tuple(turn["prompt_ids"]),
                Completion(tuple(turn["ids"]), (), turn["stop"], turn["version"], turn["text"]),
                turn["trainable"],
            )
            for turn in row["turns"]
        ]
        samples += trajectory_samples(Trajectory(row["task_id"], row["sample"], turns), i, i, supervised=True)
    return samples


def conversation_sample(messages: Sequence[Message], renderer: Renderer, index: int) -> Sample:
    """One sequence of a whole conversation; every assistant turn is trained on, with its end token."""
    ids: list[int] = []
    mask: list[bool] = []
    pending: list[Message] = []
    sampled: list[int] = []
    for message in messages:
        if message.role != "assistant":
            pending.append(message)
            continue
        prompt = renderer.extend(ids, sampled, pending) if ids else renderer.prompt(pending)
        seen = prompt[len(ids) + len(sampled) :] if ids else prompt
        mask += [True] * len(sampled) + [False] * len(seen)
        sampled = [*renderer.encode(message.content), renderer.end_id]
        ids, pending = prompt, []
    ids, mask = ids + sampled, mask + [True] * len(sampled)
    return Sample(ids, mask, [0.0] * len(ids), index, index)


def file_samples(source: Path, renderer: Renderer) -> list[Sample]:
    """Sequences from a file of conversations: rows with ``messages``, or with a prompt and a response."""
    samples = []
    for i, (place, row) in enumerate(read_rows(source)):
        if "messages" in row:
            messages = [Message(str(m["role"]), str(m["content"])) for m in row["messages"]]
        elif "prompt" in row and "response" in row:
            messages = [Message("user", str(row["prompt"])), Message("assistant", str(row["response"]))]
        else:
            raise BadInput(f"{place}: expected `messages`, or `prompt` and `response`; it has {', '.join(row)}")
        if not messages or messages[0].role == "assistant" or not any(m.role == "assistant" for m in messages):
            raise BadInput(f"{place}: a conversation starts with a user or system message and has an assistant turn")
        samples.append(conversation_sample(messages, renderer, i))
    return samples


def batches_of(cfg: Config, renderer: Renderer) -> Any:
    """The batches that sft.data names."""
    name = cfg.sft.data
    if name == "skill":
        return SkillBatches(cfg, renderer.tokenizer)
    if name == "expert":
        if cfg.data.train_files:
            raise BadInput(
                "sft.data=expert plays made-up documents only; give sft.data a run directory or a jsonl file"
            )
        return ExpertBatches(cfg, renderer)
    source = Path(name).expanduser()
    if not source.exists():
        raise BadInput(f"sft.data={name}: known are expert and skill, or an existing run directory or data file")
    if source.is_dir():
        return StoredBatches(cfg, stored_samples(source, cfg.sft.min_reward))
    return StoredBatches(cfg, file_samples(source, renderer))


def packed(item: Any, budget: int) -> list[Packed]:
    """Micro-batches of what a source gave: already packed, or sequences."""
    if isinstance(item, Packed):
        return [item]
    batch = Batch.of(item)
    return batch.packs(range(len(batch.sequences)), budget)


class Supervised:
    """The supervised loop over one learner."""

    def __init__(self, cfg: Config, run: Run, console: Console, learner: Learner, tokenizer: Any) -> None:
        self.cfg, self.run, self.console, self.learner, self.tokenizer = cfg, run, console, learner, tokenizer
        self.batches = batches_of(cfg, Renderer(tokenizer))
        self.budget = Budget(cfg.actor_rollout_ref.actor.ppo_max_token_len_per_gpu, console.warn)
        self.seconds = 0.0

    def fit(self, start: int = 0, stop: Callable[[], bool] = lambda: False) -> int:
        """Train from update ``start`` to the end, or until asked to stop; returns the updates done."""
        cfg, began = self.cfg, time.monotonic()
        losses: list[float] = []
        done = start
        every = max(1, min(50, cfg.sft.steps // 20))
        with self.console.progress("SFT step", cfg.sft.steps, start) as advance:
            for index, item in zip(range(start, cfg.sft.steps), self._items(start), strict=False):
                row = self.update(item)
                losses.append(row["sft/loss"])
                shown = (index + 1) % every == 0 or index + 1 == cfg.sft.steps
                if shown:
                    self.run.log({"phase": "sft", "step": index + 1, **row})
                advance(f"loss {row['sft/loss']:.3f} {sparkline(losses[::every])}" if shown else "")
                done, stopping = index + 1, stop()
                if stopping or (cfg.sft.save_freq > 0 and done % cfg.sft.save_freq == 0 and done < cfg.sft.steps):
                    self.save(done)
                if stopping:
                    break
        self.seconds += time.monotonic() - began
        return done

    def update(self, item: Any) -> dict[str, float]:
        """One update on what a source gave."""

        def work(packs: list[Packed]) -> tuple[float, int]:
            count = sum(len(p.entry) for p in packs)
            return self.learner.backward(packs, lambda part, logp, entropy: -logp.sum() / count), count

        reset = self.learner.optimizer.zero_grad
        value, count = run_with_budget(lambda tokens: packed(item, tokens), self.budget, work, reset)
        made = self.learner.step()
        return {
            "sft/loss": value,
            "sft/lr": made["lr"],
            "sft/grad_norm": made["grad_norm"],
            "sft/tokens": float(count),
        }

    def save(self, step: int) -> None:
        """Write a checkpoint of the supervised phase."""
        folder = self.run.path / "checkpoints"
        state = {"step": step, "metrics_size": self.run.metrics_size()}
        checkpoint.save(folder, f"sft-{step}", self.learner, self.tokenizer, state)
        checkpoint.prune(folder, "sft", self.cfg.trainer.max_ckpt_to_keep)

    def resume(self) -> int:
        """Continue from the newest checkpoint of this phase; returns the updates done."""
        state = checkpoint.load_newest(self.run.path / "checkpoints", "sft", self.learner, self.console.warn)
        if state is None:
            return 0
        self.run.truncate_metrics(state["metrics_size"])
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
