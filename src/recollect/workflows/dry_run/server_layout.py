"""What a run with vLLM servers will start, what each of them needs, and whether those that run already fit."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

from recollect.config import Config
from recollect.config.nodes import server_nodes
from recollect.config.servers import broadcasts
from recollect.config.staleness import goes_on
from recollect.files.output import refuse_unwritable
from recollect.models.device import pick_device
from recollect.samplers.fleet.make_fleet import FleetPlan, check_vllm, fleet_plan, make_fleet
from recollect.samplers.fleet.vllm_command import ServerPlan
from recollect.types import BadInput
from recollect.workflows.dry_run.predict import shape

BROADCAST = {
    "cpu": "by broadcast (gloo); a copy stays in the memory of this process",
    "cuda": "by broadcast (NCCL, which has not been tried); a copy stays in host memory",
}
PROGRAM = 2 << 30  # vLLM 0.32 took 1.43 GiB on a CPU; the rest is room


@dataclass(frozen=True)
class ServerNeeds:
    """Figures of the servers of a run, in bytes."""

    where: tuple[str, ...]  # of each server
    program: int  # what a server needs beside weights and cache, on a CPU
    weights: int  # of one server
    cache: int  # of one server; 0: the rest of its share of a GPU
    sync: int  # handed over at each step
    way: str  # how
    asleep: int  # of host memory, where weights wait while servers sleep
    note: str  # why none sleeps although it is asked for; empty: nothing to say
    here: int = 0  # of this machine's memory, by all of them

    @property
    def each(self) -> int:
        """What a server needs."""
        return self.program + self.weights + self.cache


def server_needs(cfg: Config) -> ServerNeeds:
    """What the servers need; those that run already are asked whether they fit. Raises BadInput."""
    path = cfg.actor_rollout_ref.model.path
    check_vllm(cfg.actor_rollout_ref.rollout)
    plan = fleet_plan(cfg, path)
    files = not broadcasts(cfg.actor_rollout_ref.rollout)
    if files:
        refuse_unwritable(plan.storage, f"the storage for weights {plan.storage}")
    if plan.addresses:
        _ask(cfg, path)
    size = shape(path).parameters * plan.dtype.itemsize
    cache = next((server.cache_bytes for server in plan.servers), None) or 0
    program = PROGRAM if cache else 0
    asleep = size * sum(server.sleeps for server in plan.servers)
    note = _why_awake(cfg, plan)
    way = f"through {plan.storage}" if files else BROADCAST[pick_device(cfg.trainer.device)]
    mine = sum(server.node is None and not server.devices for server in plan.servers)
    here = mine * (program + size + cache)
    needs = ServerNeeds(_places(plan), program, size, cache, size, way, asleep, note, here)
    _refuse_too_large(cfg, plan, needs)
    return needs


def _ask(cfg: Config, path: str) -> None:
    """Look at servers that run already, as the run will at its start; the run itself may be under way."""
    fleet = make_fleet(cfg, path, decode=lambda ids: "", within=f"dry-run-{os.getpid()}")
    try:
        fleet.look()
    finally:
        fleet.close()


def _places(plan: FleetPlan) -> tuple[str, ...]:
    return plan.addresses or tuple(_place(server) for server in plan.servers)


def _place(server: ServerPlan) -> str:
    what = f"GPU {', '.join(server.devices)}" if server.devices else f"CPU, {server.threads} threads"
    what += ", asleep during updates" if server.sleeps else ""
    return what if server.node is None else f"node {server.node} of those with servers, {what}"


def _why_awake(cfg: Config, plan: FleetPlan) -> str:
    """Why servers keep their memory during updates although free_cache_engine asks for it."""
    if not cfg.actor_rollout_ref.rollout.free_cache_engine or any(server.sleeps for server in plan.servers):
        return ""
    if plan.addresses:
        return "servers keep their memory during updates: those that run already do not sleep"
    if not plan.servers[0].devices:
        return "servers keep their memory during updates: vLLM has no sleep mode on a CPU"
    if goes_on(cfg):
        return "servers keep their memory during updates: they sample meanwhile (trainer.max_staleness)"
    return "servers keep their memory during updates: it is on other GPUs than the learner's"


def _refuse_too_large(cfg: Config, plan: FleetPlan, needs: ServerNeeds) -> None:
    """Refuse servers of the run that this machine has no memory for."""
    if not plan.servers:
        return
    rollout = cfg.actor_rollout_ref.rollout
    key = "actor_rollout_ref.rollout"
    if plan.servers[0].devices:
        have = torch.cuda.mem_get_info()[1] * rollout.gpu_memory_utilization
        each = needs.weights / rollout.tensor_model_parallel_size
        if each > have:
            raise BadInput(
                f"a vLLM server has {each / 2**30:.1f} GiB of weights on each GPU, and {key}.gpu_memory_utilization="
                f"{rollout.gpu_memory_utilization} gives it {have / 2**30:.1f}: raise it or tensor_model_parallel_size"
            )
        asleep = needs.asleep / max(1, server_nodes(cfg))
        if asleep > (host := _host_bytes()):
            raise BadInput(
                f"weights of servers that sleep take {asleep / 2**30:.1f} GiB of host memory, and this machine "
                f"has {host / 2**30:.1f}: set {key}.free_cache_engine=False"
            )
        return
    if plan.servers[0].node is not None:
        return  # the memory of the nodes is looked at where it is known
    have = _host_bytes()
    if (whole := needs.each * plan.count) > have:
        raise BadInput(
            f"{plan.count} vLLM servers need {whole / 2**30:.1f} GiB, and this machine has {have / 2**30:.1f}: "
            f"lower {key}.num_servers, {key}.max_num_seqs or agent.max_context_length"
        )


def _host_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
