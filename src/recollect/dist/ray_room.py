"""What a run wants of the nodes of a cluster, and whether the cluster has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from recollect.dist.ray_cluster import NodeFacts
from recollect.types import BadInput


@dataclass(frozen=True)
class Bundle:
    """What a run wants of one node."""

    title: str  # how messages call the node
    units: int  # GPUs, or CPUs where nothing is computed on GPUs
    asked_by: str  # the settings that say so
    resources: Mapping[str, float]  # in Ray's words


def room(bundles: Sequence[Bundle], nodes: Sequence[NodeFacts], device: str) -> list[NodeFacts]:
    """A node for every bundle, each another one; BadInput where the cluster can have none. Ray may choose others."""
    has = lambda node: node.gpus if device == "cuda" else node.cpus
    free = sorted(nodes, key=has)
    found: dict[int, NodeFacts] = {}
    for number in sorted(range(len(bundles)), key=lambda i: -bundles[i].units):
        bundle = bundles[number]
        node = next((node for node in reversed(free) if has(node) >= bundle.units and not _lacks(node, bundle)), None)
        if node is None:
            _refuse_few_cpus(free, bundle, has)
            raise BadInput(_too_small(bundles, sorted(nodes, key=has, reverse=True), device))
        free.remove(node)
        found[number] = node
    return [found[number] for number in range(len(bundles))]


def _lacks(node: NodeFacts, bundle: Bundle) -> bool:
    """Whether a node has fewer CPUs, or none of the GPUs, that Ray would have to give to a bundle."""
    return node.cpus < bundle.resources.get("CPU", 0) or node.gpus < bundle.resources.get("GPU", 0)


def _refuse_few_cpus(nodes: Sequence[NodeFacts], bundle: Bundle, has: Callable[[NodeFacts], float]) -> None:
    """Say of nodes with enough GPUs that their CPUs are too few: Ray would wait for others."""
    for node in nodes:
        if has(node) >= bundle.units and node.cpus < (wanted := bundle.resources.get("CPU", 0)):
            raise BadInput(
                f"{bundle.title} needs {wanted:g} CPUs beside its {bundle.units} GPUs ({bundle.asked_by}), and Ray has "
                f"{node.cpus:g} on {node.address}: start Ray there with --num-cpus"
            )


def _too_small(bundles: Sequence[Bundle], nodes: Sequence[NodeFacts], device: str) -> str:
    kind = "GPUs" if device == "cuda" else "CPUs"
    wanted: dict[tuple[str, int], int] = {}
    for bundle in bundles:
        wanted[bundle.asked_by, bundle.units] = wanted.get((bundle.asked_by, bundle.units), 0) + 1
    asked = " and ".join(f"{count} with {units} {kind} each ({by})" for (by, units), count in wanted.items())
    there = [f"{node.address} with {node.gpus if device == 'cuda' else node.cpus:g}" for node in nodes]
    return f"the run needs {len(bundles)} nodes, {asked}; the Ray cluster has {', '.join(there) or 'none'}"
