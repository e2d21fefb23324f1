"""From a configuration to the nodes of a Ray cluster that a run has, which share its storage."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from recollect.config import Config
from recollect.config.nodes import (
    NODES,
    RANKS,
    learner_nodes,
    needed_by,
    ranks_of_node,
    server_nodes,
    units_of_server_node,
)
from recollect.config.servers import ROLLOUT
from recollect.dist.ranks import RankNodes
from recollect.dist.ray_cluster import NodeFacts, RayCluster, connect
from recollect.dist.ray_nodes import NodeFiles, RayNode, RayNodes
from recollect.dist.ray_room import Bundle, room
from recollect.files.output import refuse_unwritable, writing
from recollect.models.device import pick_device
from recollect.runs.directory import RunDirectory
from recollect.types import BadInput

ANY = 0.001  # of what Ray says a node has one of: its own address


@dataclass(frozen=True)
class RunNodes:
    """The nodes of a run."""

    nodes: RayNodes
    learners: tuple[RayNode, ...]  # none: the learner is on this machine
    servers: tuple[RayNode, ...]  # none: servers are on this machine, or there are none

    @property
    def ranks(self) -> RankNodes | None:
        """Where ranks are started; None: on this machine."""
        return RankNodes(self.learners, self.nodes.here) if self.learners else None

    def close(self) -> None:
        """End what the run has there and leave the cluster."""
        self.nodes.close()


def open_nodes(cfg: Config, sampled: bool, say: Callable[[str], None]) -> RunNodes | None:
    """Take the nodes that a run wants; None where it wants none. ``sampled``: vLLM servers sample for it."""
    if not wants_nodes(cfg, sampled):
        return None
    cluster = connect(needed_by(cfg))
    try:
        here = address_of_node(cluster)
        wanted = bundles(cfg, sampled, here)
        fitting(cfg, cluster.nodes(), wanted)
        nodes = RayNodes(cluster, wanted, cfg.trainer.node_wait_s, say)
    except BaseException:
        cluster.close()
        raise
    try:
        check_shared(cfg, nodes.nodes)
    except BaseException:
        nodes.close()
        raise
    learners = learner_nodes(cfg)
    servers = server_nodes(cfg) if sampled else 0
    made = RunNodes(nodes, tuple(nodes.nodes[:learners]), tuple(nodes.nodes[-servers:]) if servers else ())
    where = ", ".join(f"{node.title}: {node.facts().address}" for node in nodes.nodes)
    say(f"Ray has given {len(nodes.nodes)} nodes ({where})")
    return made


def wants_nodes(cfg: Config, sampled: bool) -> bool:
    """Whether a run has nodes of a cluster."""
    return bool(learner_nodes(cfg) or (sampled and cfg.actor_rollout_ref.rollout.nnodes))


def address_of_node(cluster: RayCluster) -> str:
    """The address of this process's node, as Ray writes it."""
    import ray

    return str(ray.util.get_node_ip_address())


def bundles(cfg: Config, sampled: bool, here: str) -> list[Bundle]:
    """What the run wants of each node: those of the learner first, those of servers alone last."""
    cuda = pick_device(cfg.trainer.device) == "cuda"
    learners, ranks = learner_nodes(cfg), ranks_of_node(cfg)
    units = lambda count: {"CPU": float(count), **({"GPU": float(count)} if cuda else {})}
    asked = f"{NODES}, {RANKS}"
    found = [Bundle(f"node {i} of the learner", ranks, asked, units(ranks)) for i in range(learners)]
    apart = cfg.actor_rollout_ref.rollout.nnodes if sampled else 0
    if not learners:  # servers must not be given the GPUs of this process
        mine = {f"node:{here}": ANY, **({"GPU": float(ranks)} if cuda else {})}
        found = [Bundle("this machine", ranks if cuda else 0, RANKS, mine)]
    each, asked = units_of_server_node(cfg), f"{ROLLOUT}.nnodes, {ROLLOUT}.n_gpus_per_node"
    return found + [Bundle(f"node {i} of the servers", each, asked, units(each)) for i in range(apart)]


def fitting(cfg: Config, nodes: Sequence[NodeFacts], wanted: Sequence[Bundle]) -> list[NodeFacts]:
    """Nodes of the cluster that have what is wanted; BadInput where there are none."""
    device = pick_device(cfg.trainer.device)
    if device == "cpu" and cfg.trainer.device == "auto" and any(node.gpus for node in nodes):
        raise BadInput(
            "the Ray cluster has GPUs and this machine has none, so their type cannot be told: start the run on a node "
            "with GPUs, or set trainer.device=cpu"
        )
    return room(wanted, nodes, device)


def check_shared(cfg: Config, nodes: Sequence[NodeFiles]) -> None:
    """Refuse folders that a node does not see: weights, checkpoints and models go through them."""
    run, storage = RunDirectory.of(cfg).path, cfg.actor_rollout_ref.rollout.server_storage
    places = {f"the run directory {run} (trainer.default_local_dir)": run}
    if storage and server_nodes(cfg):
        places[f"{ROLLOUT}.server_storage={storage}"] = Path(storage).expanduser()
    for key, place in places.items():
        refuse_unwritable(place, key)
        folder = next(p for p in (place.absolute(), *place.absolute().parents) if p.is_dir())
        token = secrets.token_hex(16)
        probe = folder / f".recollect-probe-{token[:8]}"
        try:
            with writing(probe):
                probe.write_text(token)
            for node in nodes:
                if node.reads(probe) != token:
                    raise BadInput(f"{key}: {node.name} does not see {folder}; name a folder that all nodes share")
        finally:
            with suppress(OSError):
                probe.unlink()
    folders = {
        "actor_rollout_ref.model.path": cfg.actor_rollout_ref.model.path,
        "critic.model.path": cfg.critic.model.path,
        "trainer.resume_from_path": cfg.trainer.resume_from_path,
    }
    for key, named in folders.items():
        if named and Path(named).expanduser().is_dir():
            for node in nodes:
                if not node.has(Path(named).expanduser().absolute()):
                    raise BadInput(f"{key}={named}: {node.name} does not see it; name a folder that all nodes share")
