"""Batches of what an oracle says about the tasks of data.train_files, as often of each kind of turn."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from recollect.agents.rollout import Collector
from recollect.agents.session import Binding
from recollect.chat import Renderer
from recollect.config import Config
from recollect.oracles.oracle_of_agent import ORACLES
from recollect.oracles.play import oracle_roles
from recollect.packing.samples import trajectory_samples
from recollect.sources.task_stream import held_out, training_tasks
from recollect.training.sft.sequences import LoadedSequences, SequenceLimits, take
from recollect.types import BadInput, Group, Sample, Sampling, Task

ANSWERS = ("qa", "agent")  # roles whose turns are one kind


class BalancedBatches:
    """Batches with as many sequences of each kind; the order within a kind is shuffled anew each pass over it."""

    def __init__(self, kinds: dict[str, list[Sample]], batch_size: int, seed: int) -> None:
        self.kinds = {name: found for name, found in sorted(kinds.items()) if found}
        assert self.kinds, "there is something to train on"
        self.size, self.seed = batch_size, seed
        for sample in (s for found in self.kinds.values() for s in found):
            sample.group = 0

    @property
    def per_epoch(self) -> int:
        """Updates in which as many sequences are trained on as there are."""
        return -(-sum(map(len, self.kinds.values())) // self.size)

    def __getitem__(self, index: int) -> list[Sample]:
        first, names = index * self.size, list(self.kinds)
        picked = [(names[place % len(names)], place // len(names)) for place in range(first, first + self.size)]
        return [self._at(name, place) for name, place in picked]

    def _at(self, name: str, place: int) -> Sample:
        found = self.kinds[name]
        epoch, at = divmod(place, len(found))
        return found[self._order(name, epoch)[at]]

    def _order(self, name: str, epoch: int) -> list[int]:
        order = list(range(len(self.kinds[name])))
        random.Random(f"sft:{self.seed}:{name}:{epoch}").shuffle(order)
        return order


def oracle_batches(
    cfg: Config, renderer: Renderer, limits: SequenceLimits, say: Callable[[str], None]
) -> BalancedBatches:
    """What the oracle says about all training tasks; attempts that reach no more than sft.min_reward are left out."""
    groups = played(cfg, renderer, training_tasks(cfg, say))
    loaded, kinds = LoadedSequences(rows=len(groups)), dict[str, list[Sample]]()
    least = cfg.sft.min_reward
    for i, group in enumerate(groups):
        (trajectory,) = group.trajectories
        if not trajectory.valid or trajectory.reward <= 0 or trajectory.reward < least:
            loaded.low += 1
            continue
        samples = trajectory_samples(trajectory, i, 0, supervised=True)
        for sample, kind in zip(samples, kinds_of(samples, renderer, ORACLES[cfg.agent.agent_type].idle), strict=True):
            if take(sample, group.task.place, limits, loaded):
                kinds.setdefault(kind, []).append(sample)
    shown = ", ".join(f"{len(found):,} {name}" for name, found in sorted(kinds.items()))
    say(f"SFT on an oracle: {loaded.summary()}; {shown}")
    if not loaded.samples:
        raise BadInput(_nothing(groups))
    return BalancedBatches(kinds, cfg.sft.batch_size, cfg.trainer.seed)


def oracle_conversations(cfg: Config, renderer: Renderer, limits: SequenceLimits) -> list[Sample]:
    """What the oracle says about held-out tasks that it solves, to measure the loss on."""
    loaded = LoadedSequences()
    for i, group in enumerate(played(cfg, renderer, held_out(cfg))):
        (trajectory,) = group.trajectories
        if trajectory.valid and trajectory.reward > 0:
            for sample in trajectory_samples(trajectory, i, 0, supervised=True):
                take(sample, group.task.place, limits, loaded)
    return loaded.samples


def played(cfg: Config, renderer: Renderer, tasks: Sequence[Task]) -> list[Group]:
    """The oracle's attempt at every task."""
    roles = {role: Binding(oracle, renderer) for role, oracle in oracle_roles(cfg, renderer).items()}
    collector = Collector(cfg, roles)
    limit = cfg.agent.max_tokens_per_turn or cfg.data.max_response_length

    async def play() -> list[Group]:
        try:
            return await collector.collect(tasks, 1, Sampling(max_tokens=limit), "oracle")
        finally:
            await collector.close()

    return asyncio.run(play())


def kinds_of(samples: Sequence[Sample], renderer: Renderer, idle: str) -> list[str]:
    """The kind of each sequence of an attempt: answer, or of what reads found, keep and nothing."""
    kinds, before = [], ""
    for sample in samples:
        said = renderer.decode(sample.ids[sample.mask].tolist()).strip()
        role = sample.roles[0][0] if sample.roles else ""
        reading = "nothing" if said == idle else "keep" if said == before else "found"
        kinds.append("answer" if role in ANSWERS else reading)
        before = said
    return kinds


def _nothing(groups: Sequence[Group]) -> str:
    """Why nothing is left to imitate."""
    failed = next((t.failure for g in groups for t in g.trajectories if t.failure is not None), None)
    why = f"; {failed.kind}: {failed.message}" if failed else ": no document holds its answer, or no row its solution"
    return f"sft.data=oracle solves none of the {len(groups)} tasks{why}"
