"""Which ranks a run would have, and what each of them would hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recollect.config import Config
from recollect.config.nodes import NODES, learner_nodes
from recollect.config.nodes import RANKS as GPUS
from recollect.models.gpu_plan import gpu_plan
from recollect.models.kind_check import refuse_sight_of_ranks
from recollect.models.load import load_config
from recollect.training.learner.ranks.place_of import place_of
from recollect.types import BadInput
from recollect.workflows.dry_run.predict import Need

ELSEWHERE = "rollout"  # the part that the driver holds


@dataclass(frozen=True)
class RanksLayout:
    """The ranks, and the bytes of each part in every one of them."""

    size: int
    device: str
    shards: int  # ranks that share one copy of the weights
    held: dict[str, int]
    driver: int  # bytes of what samples in the process that was started
    gpus: tuple[int, ...] = ()  # of the ranks
    sampling: int = 0  # the GPU of the driver
    nodes: int = 1

    @property
    def each(self) -> int:
        """Bytes that every rank needs."""
        return sum(self.held.values())

    @property
    def total(self) -> int:
        """Bytes on the fullest device: a machine's memory holds all ranks, a GPU one of them."""
        if self.device == "cpu":
            return self.driver + self.each * (self.size // self.nodes)
        return self.driver + self.each if self.sampling in self.gpus else max(self.driver, self.each)

    def summary(self) -> dict[str, Any]:
        """For programs."""
        about = {"count": self.size, "nodes": self.nodes, "device": self.device}
        return {**about, "fsdp_size": self.shards, "memory_each": self.each}

    def rows(self, words: Any) -> list[tuple[str, ...]]:
        """For people: ranks that hold the same, side by side; ``words`` says bytes."""
        parts = ", ".join(f"{part} {words(count)}" for part, count in self.held.items() if count)
        rows = []
        for first in range(0, self.size, self.shards):
            last = first + self.shards - 1
            who = f"rank {first}" if last == first else f"ranks {first}–{last}"
            where = self._where(first, last)
            how = "all weights" if self.shards == 1 else f"1/{self.shards} of weights, gradients and moments each"
            rows.append((who, where, how, f"{words(self.each)} each: {parts}"))
        what = "samples" if self.device == "cpu" else f"samples on GPU {self.sampling}"
        what = what if self.driver else "keeps the loop; servers sample"
        return [*rows, ("driver", "this process", what, words(self.driver))]

    def _where(self, first: int, last: int) -> str:
        """Where some ranks are."""
        each = self.size // self.nodes
        inside = slice(first % each, last % each + 1) if first // each == last // each else slice(0, each)
        where = "CPU processes" if self.device == "cpu" else f"GPU {', '.join(map(str, self.gpus[inside]))}"
        if self.nodes == 1:
            return where
        if first // each == last // each:
            return f"node {first // each}, {where}"
        return f"nodes {first // each}–{last // each}, {where} of each"


def refuse_too_large(cfg: Config, layout: RanksLayout, needs: Sequence[Need], have: int, beside: int = 0) -> None:
    """Refuse ranks of this machine that ``have`` bytes of its memory, or of a GPU's, are too few for.

    ``beside`` is what servers need of the same memory. On nodes of a cluster GPUs are taken to be like the one here.
    """
    gib, more = 1 << 30, f"take more ranks ({GPUS}, {NODES}), or LoRA"
    if layout.device == "cuda":
        each = sum(-(-_stays(cfg, need) // layout.shards) for need in needs if need.part != ELSEWHERE)
        if each > have:
            raise BadInput(
                f"a rank would hold {each / gib:.1f} GiB on its GPU, which has {have / gib:.1f}: {more}, or "
                "actor_rollout_ref.actor.fsdp_config.param_offload=True and optimizer_offload=True"
            )
    elif layout.nodes == 1 and layout.total + beside > have:
        servers = f" and servers {beside / gib:.1f}" if beside else ""
        raise BadInput(
            f"{layout.size} ranks and the process that samples would need {layout.total / gib:.1f} GiB{servers}, and "
            f"this machine has {have / gib:.1f}: take nodes ({NODES}), or LoRA"
        )


def _stays(cfg: Config, need: Need) -> int:
    """Bytes of a part that are on GPUs all the time, for all its ranks together."""
    policy = cfg.actor_rollout_ref
    settings = {
        "actor": policy.actor.fsdp_config,
        "critic": cfg.critic.fsdp_config,
        "reference": policy.ref.fsdp_config,
    }
    waits: Any = settings.get(need.part)
    trained = 0 if getattr(waits, "param_offload", False) else need.weights + need.gradients
    return trained + (0 if getattr(waits, "optimizer_offload", False) else need.moments)


def ranks_layout(cfg: Config, needs: Sequence[Need]) -> RanksLayout | None:
    """The ranks of a run; None where one process trains. What cannot be is refused."""
    place = place_of(cfg)
    if place is None:
        return None
    path = cfg.actor_rollout_ref.model.path
    refuse_sight_of_ranks(load_config(path), path)
    held = {need.part: -(-need.total // place.shards) for need in needs if need.part != ELSEWHERE}
    driver = sum(need.total for need in needs if need.part == ELSEWHERE)
    plan = gpu_plan(cfg)
    gpus = ((), 0) if plan is None else (plan.train, plan.driver)
    nodes = max(1, learner_nodes(cfg))
    return RanksLayout(place.size, place.device, place.shards, held, driver, *gpus, nodes)
