"""Whether a run has nodes of a Ray cluster, how many for what, and settings that only make sense if it has."""

from __future__ import annotations

from collections.abc import Iterator

from recollect.config.schema import Config
from recollect.config.servers import ROLLOUT, served

NODES, RANKS = "trainer.nnodes", "trainer.n_gpus_per_node"


def learner_nodes(cfg: Config) -> int:
    """Nodes with ranks; 0: the learner is on this machine."""
    return cfg.trainer.nnodes if cfg.trainer.nnodes > 1 else 0


def server_nodes(cfg: Config) -> int:
    """Nodes with servers that the run starts, apart from the learner or together with it; 0: this machine."""
    rollout = cfg.actor_rollout_ref.rollout
    return (rollout.nnodes or learner_nodes(cfg)) if served(rollout) and not rollout.server_addresses else 0


def needed_by(cfg: Config) -> str:
    """The setting that asks for a cluster; empty: none does."""
    if learner_nodes(cfg):
        return f"{NODES}={cfg.trainer.nnodes}"
    apart = cfg.actor_rollout_ref.rollout.nnodes
    return f"{ROLLOUT}.nnodes={apart}" if apart else ""


def ranks_of_node(cfg: Config) -> int:
    """Ranks of each node of the learner."""
    return max(1, cfg.trainer.n_gpus_per_node)


def units_of_server_node(cfg: Config) -> int:
    """GPUs, or with device=cpu CPUs, of each node with servers."""
    rollout = cfg.actor_rollout_ref.rollout
    return (rollout.n_gpus_per_node if rollout.nnodes else 0) or ranks_of_node(cfg)


def problems(cfg: Config) -> Iterator[str]:
    """What cannot work together."""
    rollout = cfg.actor_rollout_ref.rollout
    apart = {"nnodes": rollout.nnodes, "n_gpus_per_node": rollout.n_gpus_per_node}
    if rollout.nnodes and not served(rollout):
        yield f"{ROLLOUT}.nnodes={rollout.nnodes} is about vLLM servers, and none sample; set {ROLLOUT}.name=vllm"
    if rollout.n_gpus_per_node and not rollout.nnodes and not rollout.server_addresses:
        yield (
            f"{ROLLOUT}.n_gpus_per_node={rollout.n_gpus_per_node} is about nodes for servers alone, and there are none"
            f": set {ROLLOUT}.nnodes, or {ROLLOUT}.num_servers for servers where the learner is"
        )
    for key, value in apart.items():
        if value and rollout.server_addresses:
            yield f"{ROLLOUT}.{key}={value} is about servers that the run starts, and server_addresses names others"
    if (nodes := server_nodes(cfg)) and rollout.tensor_model_parallel_size > units_of_server_node(cfg):
        key = f"{ROLLOUT}.n_gpus_per_node" if rollout.nnodes else RANKS
        yield (
            f"{ROLLOUT}.tensor_model_parallel_size={rollout.tensor_model_parallel_size}: a server is on one node, and "
            f"each of the {nodes} has {units_of_server_node(cfg)} GPUs for servers ({key})"
        )
    for key, gpus in {"trainer.gpus": cfg.trainer.gpus, f"{ROLLOUT}.gpus": rollout.gpus}.items():
        if gpus and (learner_nodes(cfg) if key == "trainer.gpus" else server_nodes(cfg)):
            yield f"{key}={gpus} names GPUs of this machine, and Ray gives those of its nodes; drop it"
