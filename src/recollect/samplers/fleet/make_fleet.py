"""From a configuration to the servers that sample for a run, and what each of them needs."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from recollect.config import Config, Rollout
from recollect.config.nodes import server_nodes, units_of_server_node
from recollect.config.servers import broadcasts
from recollect.config.staleness import goes_on
from recollect.dist.machine import Machine
from recollect.models.device import pick_device, pick_dtype
from recollect.models.gpu_plan import SAMPLE, planned
from recollect.models.kind_check import sees
from recollect.models.load import context_window, load_config, load_tokenizer
from recollect.models.small_copy import token_shape
from recollect.models.weights_digest import weights_digest
from recollect.runs.directory import RunDirectory
from recollect.samplers.fleet.fleet import Fleet, FleetFacts
from recollect.samplers.fleet.members import FleetLimits, outside, started
from recollect.samplers.fleet.same_model import facts_of, other_model
from recollect.samplers.fleet.server_process import OwnServer
from recollect.samplers.fleet.vllm_command import ServerPlan, launch, logprobs_mode, python_of
from recollect.samplers.fleet.weight_broadcast import WeightsByBroadcast
from recollect.samplers.fleet.weight_store import WeightStore
from recollect.samplers.fleet.weight_version import WeightVersion, WeightWay
from recollect.samplers.fleet.weights_by_files import WeightsByFiles
from recollect.types import BadInput, Sampling

SERVERS = "servers"  # the folder of a run with the servers' logs, and with weights unless they go elsewhere
WEIGHTS = "weights"  # the folder of the storage with the weights
LONG_ROW = 2048  # tokens that a CPU server's cache has for every row, where there is memory
LOOK_S = 60.0  # for a Python to start
FREE_SHARE = 0.5  # of a CPU's free memory that all caches may have


@dataclass(frozen=True)
class FleetPlan:
    """Servers and storage."""

    servers: tuple[ServerPlan, ...]  # that the run starts
    addresses: tuple[str, ...]  # of those that somebody else runs
    storage: Path
    logs: Path
    dtype: torch.dtype
    window: int
    logprobs: str  # vLLM's name for what servers report

    @property
    def count(self) -> int:
        """How many servers there are."""
        return len(self.servers) + len(self.addresses)


def fleet_plan(cfg: Config, path: str) -> FleetPlan:
    """Which servers a run has; nothing is started."""
    rollout, device = cfg.actor_rollout_ref.rollout, pick_device(cfg.trainer.device)
    dtype, config = pick_dtype(rollout.dtype, device), load_config(path)
    if sees(config):
        raise BadInput(f"{path} reads images, and servers are sent none; drop actor_rollout_ref.rollout.name=vllm")
    window = min(context_window(config), cfg.agent.max_context_length or context_window(config))
    reported = logprobs_mode(Sampling(rollout.temperature, rollout.top_p, rollout.top_k))
    run = RunDirectory.of(cfg).path.absolute()
    own = f"{run.name}-{hashlib.sha256(str(run).encode()).hexdigest()[:8]}"  # runs of one name may share the storage
    storage = Path(rollout.server_storage).expanduser() / own if rollout.server_storage else run / SERVERS
    if rollout.server_addresses:
        return FleetPlan((), tuple(rollout.server_addresses), storage, run / SERVERS, dtype, window, reported)
    count, nodes = server_count(cfg), server_nodes(cfg)
    beside = -(-count // max(1, nodes))  # servers on one machine
    cache = None if device == "cuda" else _cache_bytes(config, dtype, window, rollout.max_num_seqs, beside)
    place_of = partial(devices_there, cfg) if nodes else partial(devices, cfg, count=count)
    places = [place_of(number) if device == "cuda" else () for number in range(count)]
    if broadcasts(rollout) and any(shares_gpus(cfg, place) for place in places):
        raise BadInput(
            "actor_rollout_ref.rollout.weight_sync=broadcast: NCCL has one process on a GPU, and these servers share "
            "the learner's: set weight_sync=files, or give servers GPUs of their own"
        )
    _refuse_crowded(cfg, places)
    plans = [
        ServerPlan(
            folder=str(run / SERVERS / "model"),
            rollout=rollout,
            dtype=str(dtype).removeprefix("torch."),
            window=window,
            cache_bytes=cache,
            devices=place,
            node=number % nodes if nodes else None,
            threads=0 if device == "cuda" else max(1, (os.cpu_count() or 1) // beside),
            seed=cfg.trainer.seed,
            sleeps=rollout.free_cache_engine and not goes_on(cfg) and shares_gpus(cfg, place),
        )
        for number, place in enumerate(places)
    ]
    return FleetPlan(tuple(plans), (), storage, run / SERVERS, dtype, window, reported)


def _refuse_crowded(cfg: Config, places: Sequence[tuple[str, ...]]) -> None:
    """Refuse more servers on a GPU than their shares of its memory allow."""
    rollout, nodes = cfg.actor_rollout_ref.rollout, max(1, server_nodes(cfg))
    beside = Counter((number % nodes, gpu) for number, place in enumerate(places) for gpu in place)
    if (most := max(beside.values(), default=0)) > 1 and most * rollout.gpu_memory_utilization > 1:
        raise BadInput(
            f"{most} vLLM servers would be on one GPU, each with actor_rollout_ref.rollout.gpu_memory_utilization="
            f"{rollout.gpu_memory_utilization} of its memory: lower that, or num_servers"
        )


def server_count(cfg: Config) -> int:
    """How many servers the run starts: those asked for, or as many as the GPUs make."""
    rollout = cfg.actor_rollout_ref.rollout
    if rollout.num_servers:
        return rollout.num_servers
    nodes, size = server_nodes(cfg), rollout.tensor_model_parallel_size
    if nodes and (rollout.nnodes or pick_device(cfg.trainer.device) == "cuda"):
        return nodes * max(1, units_of_server_node(cfg) // size)
    if pick_device(cfg.trainer.device) != "cuda":
        return max(1, nodes)
    gpus = len(rollout.gpus) or cfg.trainer.n_gpus_per_node
    return max(1, gpus // size)


def devices_there(cfg: Config, number: int) -> tuple[str, ...]:
    """The GPUs of a server on a node, by their numbers among those that Ray gives the run there."""
    size, there = cfg.actor_rollout_ref.rollout.tensor_model_parallel_size, units_of_server_node(cfg)
    first = (number // server_nodes(cfg) * size) % (there - there % size)
    return tuple(str(gpu) for gpu in range(first, first + size))


def devices(cfg: Config, number: int, count: int) -> tuple[str, ...]:
    """The GPUs of a server, as CUDA_VISIBLE_DEVICES names them.

    They are those that the settings name, or those that the learner leaves free, if all servers find room there, else
    all from the first.
    """
    each = cfg.actor_rollout_ref.rollout.tensor_model_parallel_size
    all_of_them, learner = visible_devices(), learner_devices(cfg)
    free = [name for name in all_of_them if name not in learner]
    given = [all_of_them[i] for i in planned(cfg, len(all_of_them)).sample]
    chosen = given or (free if len(free) >= each * count else all_of_them)
    if len(chosen) < each:
        where = f"{SAMPLE} names {len(given)}" if given else f"there are {len(all_of_them)} GPUs here"
        raise BadInput(f"actor_rollout_ref.rollout.tensor_model_parallel_size={each}: {where}")
    first = (number * each) % (len(chosen) - len(chosen) % each)
    return tuple(chosen[first : first + each])


def visible_devices() -> list[str]:
    """The GPUs of this process, as CUDA_VISIBLE_DEVICES names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return named.split(",") if named else [str(i) for i in range(torch.cuda.device_count())]


def learner_devices(cfg: Config) -> list[str]:
    """Those on which the learner computes."""
    found = visible_devices()
    return [found[i] for i in planned(cfg, len(found)).train if i < len(found)]


def shares_gpus(cfg: Config, place: Sequence[str]) -> bool:
    """Whether the learner computes on GPUs of a server. On nodes of the learner its ranks have all of them."""
    if server_nodes(cfg):
        return bool(place) and not cfg.actor_rollout_ref.rollout.nnodes
    return bool(place) and not set(place).isdisjoint(learner_devices(cfg))


def check_vllm(rollout: Rollout) -> None:
    """Refuse a Python without vLLM before anything is started."""
    python = rollout.server_python
    if rollout.server_addresses or not python:
        return  # `served` has looked here
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('vllm') is None)"
    key = f"actor_rollout_ref.rollout.server_python={python}"
    try:
        done = subprocess.run([python_of(rollout), "-c", code], capture_output=True, timeout=LOOK_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadInput(f"{key} cannot be run: {getattr(error, 'strerror', None) or 'no answer'}") from None
    if done.returncode:
        raise BadInput(f"{key} has no vLLM; run: {python} -m pip install vllm")


def make_fleet(
    cfg: Config,
    path: str,
    decode: Callable[[Sequence[int]], str],
    say: Callable[[str], None] = lambda text: None,
    warn: Callable[[str], None] = lambda text: None,
    machines: Sequence[Machine] = (),
    within: str = WEIGHTS,
) -> Fleet:
    """The sampler of a configuration with rollout.name=vllm. Servers start with the first weights.

    ``machines`` are the nodes of the servers; none: they are on this machine. ``within`` is the folder of the storage
    that this fleet may empty.
    """
    rollout, plan = cfg.actor_rollout_ref.rollout, fleet_plan(cfg, path)
    check_vllm(rollout)
    logs = [plan.logs / f"server-{i}.log" for i in range(len(plan.servers))]
    where = [machines[s.node] if machines and s.node is not None else None for s in plan.servers]
    processes = [OwnServer(partial(launch, s), log, at) for s, log, at in zip(plan.servers, logs, where, strict=True)]
    config, tokenizer = load_config(path), load_tokenizer(path)
    limits = FleetLimits(rollout.server_start_s, rollout.server_timeout_s, rollout.server_wait_s, rollout.max_num_seqs)
    device = pick_device(cfg.trainer.device)
    files = WeightsByFiles(WeightStore(plan.storage / within, plan.dtype))
    way: WeightWay = WeightsByBroadcast(plan.dtype, device) if broadcasts(rollout) else files
    wanted = facts_of(config)
    facts = FleetFacts(
        plan.window,
        int(config.vocab_size),
        check=lambda about: differs(about, wanted, plan),
        digest=lambda weights: digest_of(weights, config, plan.dtype),
    )

    def prepare() -> None:
        """What servers of ours load: configuration and tokenizer, no weights."""
        folder = plan.logs / "model"
        folder.mkdir(parents=True, exist_ok=True)
        config.save_pretrained(folder)
        tokenizer.save_pretrained(folder)

    members = (
        started(processes, [server.sleeps for server in plan.servers]) if plan.servers else outside(plan.addresses)
    )
    return Fleet(members, way, facts, decode, limits, say, warn, prepare if plan.servers else None)


def differs(about: Mapping[str, Any], wanted: Mapping[str, Any], plan: FleetPlan) -> str:
    """What is wrong with what a server says of itself; empty: nothing."""
    if difference := other_model(about.get("config") or {}, wanted):
        return f"it serves another model: {difference}"
    if about.get("backend") != "recollect":
        return """it cannot take weights: start it with --weight-transfer-config '{"backend": "recollect"}'"""
    if int(about.get("window", 0)) < plan.window:
        return f"it takes {about.get('window')} tokens, and {plan.window} are needed: --max-model-len {plan.window}"
    if about.get("logprobs_mode") != plan.logprobs:
        return (
            f"it reports {about.get('logprobs_mode')}, and {plan.logprobs} are needed: --logprobs-mode {plan.logprobs}"
        )
    dtype = str(plan.dtype).removeprefix("torch.")
    if about.get("dtype") != dtype:
        return f"it computes in {about.get('dtype')}, not in {dtype}: --dtype {dtype}, or set rollout.dtype"
    return ""


def digest_of(weights: WeightVersion, config: Any, dtype: torch.dtype) -> str:
    """The digest of the model with these weights, as one that is loaded in this process has it."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_config(deepcopy(config)).to(dtype)
    missing, unexpected = model.load_state_dict(dict(weights.tensors()), strict=False)
    tied = set(getattr(model, "_tied_weights_keys", None) or ())
    assert not unexpected, unexpected
    assert not set(missing) - tied, missing
    return weights_digest(model)


def _cache_bytes(config: Any, dtype: torch.dtype, window: int, rows: int, servers: int) -> int:
    """Memory for keys and values of a CPU server."""
    layers, heads, dim = token_shape(config)
    token = 2 * layers * heads * dim * dtype.itemsize
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    most = int(FREE_SHARE * free) // servers
    return max(2 * window * token, min(rows * min(window, LONG_ROW) * token, most))
