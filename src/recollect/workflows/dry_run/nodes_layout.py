"""Which nodes of a Ray cluster a run would have, what each of them would do, and whether it has the memory for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recollect.agents.cluster_work import RUN_ON
from recollect.config import Config, Sandbox
from recollect.config.nodes import learner_nodes, needed_by, ranks_of_node, server_nodes
from recollect.config.servers import served
from recollect.dist.ray_cluster import NodeFacts, connect
from recollect.dist.ray_nodes import SeenNode
from recollect.models.device import pick_device
from recollect.sandbox.box import open_box
from recollect.training.run_nodes import address_of_node, bundles, check_shared, fitting, wants_nodes
from recollect.types import BadInput
from recollect.workflows.dry_run.ranks_layout import RanksLayout
from recollect.workflows.dry_run.server_layout import ServerNeeds


@dataclass(frozen=True)
class NodeShare:
    """What one node would have of a run."""

    title: str
    address: str  # of a node that fits; Ray may choose another one
    runs: tuple[str, ...]
    need: int  # bytes of its memory; 0: on GPUs, whose share is said elsewhere
    have: int


def nodes_layout(cfg: Config, ranks: RanksLayout | None, servers: ServerNeeds | None) -> list[NodeShare]:
    """The nodes; none where the run is on this machine. The cluster is asked, and nothing is started there."""
    sampled = served(cfg.actor_rollout_ref.rollout)
    if not wants_nodes(cfg, sampled):
        return []
    cluster = connect(needed_by(cfg))
    try:
        wanted = bundles(cfg, sampled, address_of_node(cluster))
        nodes = fitting(cfg, cluster.nodes(), wanted)
        check_shared(cfg, [SeenNode(b.title, node) for b, node in zip(wanted, nodes, strict=True)])
        shares = [_share(cfg, number, b.title, nodes[number], ranks, servers) for number, b in enumerate(wanted)]
    finally:
        cluster.close()
    for share in shares:
        if share.need > share.have:
            raise BadInput(
                f"{share.title} ({share.address}) would need {share.need / 2**30:.1f} GiB for {', '.join(share.runs)}, "
                f"and Ray has {share.have / 2**30:.1f} there: take more nodes, or fewer ranks and servers on each"
            )
    return shares


def work_cpus(cfg: Config, isolated: bool) -> float | None:
    """CPUs of the cluster for tools and rewards; None: they are computed here. ``isolated``: they need sandboxes."""
    if cfg.agent.run_on != "cluster":
        return None
    sampled = served(cfg.actor_rollout_ref.rollout)
    cluster = connect(RUN_ON)
    try:
        nodes = [node for node in cluster.nodes() if node.cpus > 0]
        wanted = bundles(cfg, sampled, address_of_node(cluster)) if wants_nodes(cfg, sampled) else []
        there, taken = sum(node.cpus for node in nodes), sum(bundle.resources.get("CPU", 0.0) for bundle in wanted)
        if there - taken < 1:
            raise BadInput(
                f"{RUN_ON} needs a CPU that ranks and servers leave free; the cluster has {there:g}, and the run takes "
                f"{taken:g}"
            )
        for node in nodes if isolated else ():
            if why := str(SeenNode("a node for programs", node).ask(why_not_isolated, cfg.sandbox)):
                raise BadInput(f"the node {node.address}: {why}")
        return there - taken
    finally:
        cluster.close()


def why_not_isolated(cfg: Sandbox) -> str:
    """Why programs cannot be isolated on this machine; empty: they can."""
    try:
        open_box(cfg).close()
    except BadInput as error:
        return str(error)
    return ""


def _share(
    cfg: Config, number: int, title: str, node: NodeFacts, ranks: RanksLayout | None, servers: ServerNeeds | None
) -> NodeShare:
    learners, each = learner_nodes(cfg), ranks_of_node(cfg)
    runs, need = [], 0
    if number < max(1, learners):
        if not learners:
            runs.append("the learner")
        elif ranks is not None:
            runs.append(span("rank", number * each, (number + 1) * each - 1))
            need += each * ranks.each
    count, apart = server_nodes(cfg), cfg.actor_rollout_ref.rollout.nnodes
    place = number - max(1, learners) if apart else number
    if servers is not None and count and 0 <= place < count:
        mine = range(place, len(servers.where), count)
        runs += [f"server {i}" for i in mine]
        need += len(mine) * servers.each
    return NodeShare(
        title, node.address, tuple(runs), need if pick_device(cfg.trainer.device) == "cpu" else 0, node.memory
    )


def span(name: str, first: int, last: int) -> str:
    """Several of them, for people."""
    return f"{name} {first}" if first == last else f"{name}s {first}–{last}"


def rows(shares: Sequence[NodeShare], words: Any) -> list[tuple[str, ...]]:
    """For people; ``words`` says bytes."""
    memory = lambda share: f"{words(share.need)} of {words(share.have)}" if share.need else "on its GPUs"
    return [(s.title, s.address, ", ".join(s.runs), memory(s)) for s in shares]
