"""Which GPU of this machine does what in a training: some train, some sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from recollect.config import Config
from recollect.config.nodes import NODES, learner_nodes, ranks_of_node
from recollect.config.servers import HOW, served
from recollect.models.device import pick_device
from recollect.types import BadInput

TRAIN, SAMPLE = "trainer.gpus", "actor_rollout_ref.rollout.gpus"
RANKS = "trainer.n_gpus_per_node"


@dataclass(frozen=True)
class GpuPlan:
    """GPUs by their numbers, as torch counts them."""

    train: tuple[int, ...]  # one for every rank, or the one of this process
    sample: tuple[int, ...]  # those that servers or the engine were given; empty: wherever there is room
    driver: int  # the GPU of this process
    apart: bool = False  # one GPU trains and another samples, so the learner has a process of its own


def gpu_plan(cfg: Config) -> GpuPlan | None:
    """Who has which GPU; None on a CPU. What is not there is refused."""
    asked = {TRAIN: cfg.trainer.gpus, SAMPLE: cfg.actor_rollout_ref.rollout.gpus}
    if pick_device(cfg.trainer.device) != "cuda":
        if given := next((f"{key}={gpus}" for key, gpus in asked.items() if gpus), ""):
            raise BadInput(f"{given}: this run computes on the CPU; drop it")
        return None
    if learner_nodes(cfg):
        if not served(cfg.actor_rollout_ref.rollout):
            raise BadInput(f"{NODES}={cfg.trainer.nnodes} with GPUs needs vLLM servers: {HOW}")
        return GpuPlan(tuple(range(ranks_of_node(cfg))), (), 0)  # as each node counts those that Ray gives it
    return planned(cfg, torch.cuda.device_count())


def planned(cfg: Config, there: int) -> GpuPlan:
    """The plan on a machine with so many GPUs."""
    rollout, ranks = cfg.actor_rollout_ref.rollout, max(1, cfg.trainer.n_gpus_per_node)
    _check(TRAIN, cfg.trainer.gpus, there)
    _check(SAMPLE, rollout.gpus, there)
    if ranks > 1 and ranks > there:
        raise BadInput(f"{RANKS}={ranks}: this machine has {there} GPUs")
    if cfg.trainer.gpus and len(cfg.trainer.gpus) != ranks:
        raise BadInput(
            f"{TRAIN}={cfg.trainer.gpus}: {RANKS}={ranks} is another number; set it to {len(cfg.trainer.gpus)}"
        )
    train, sample = tuple(cfg.trainer.gpus or range(ranks)), tuple(rollout.gpus)
    if served(rollout):
        if sample and rollout.server_addresses:
            raise BadInput(
                f"{SAMPLE}={list(sample)} is about servers that the run starts, and server_addresses names others"
            )
        return GpuPlan(train, sample, train[0])
    if len(sample) > 1:
        raise BadInput(
            f"{SAMPLE}={list(sample)}: the engine samples on one GPU; actor_rollout_ref.rollout.name=vllm uses several"
        )
    here = sample[0] if sample else train[0]
    return GpuPlan(train, sample, here, apart=ranks == 1 and here != train[0])


def take_gpu(cfg: Config) -> None:
    """Let this process compute on its GPU, if a GPU was named."""
    plan = gpu_plan(cfg)
    if plan is not None and (cfg.trainer.gpus or plan.sample):
        torch.cuda.set_device(plan.driver)


def _check(key: str, gpus: Sequence[int], there: int) -> None:
    if len(set(gpus)) < len(gpus):
        raise BadInput(f"{key}={list(gpus)} names a GPU twice")
    if missing := [gpu for gpu in gpus if gpu >= there]:
        named = f"{there} GPUs, 0 to {there - 1}" if there > 1 else "one GPU, 0"
        raise BadInput(f"{key}={list(gpus)}: there is no GPU {missing[0]}; this machine has {named}")
