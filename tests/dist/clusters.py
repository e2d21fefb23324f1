"""A Ray cluster of several nodes on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

STORE = 80 << 20  # bytes of a node's object store, the least that Ray takes


@contextmanager
def cluster(*cpus: int) -> Iterator[Any]:
    """A head without CPUs and a node for each number; RAY_ADDRESS names it."""
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}  # as quick as all else
    os.environ |= quiet | {"RAY_memory_monitor_refresh_ms": "0"}  # whatever else the machine does
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=head)
    before = os.environ.get("RAY_ADDRESS")
    try:
        for count in cpus:
            add(made, count)
        os.environ["RAY_ADDRESS"] = made.address
        yield made
    finally:
        os.environ.pop("RAY_ADDRESS", None)
        if before is not None:
            os.environ["RAY_ADDRESS"] = before
        leave()
        made.shutdown()


def add(made: Any, cpus: int) -> Any:
    """Another node."""
    return made.add_node(num_cpus=cpus, object_store_memory=STORE, wait=False)


def leave() -> None:
    """Leave a cluster that a test has not left."""
    import ray

    with suppress(Exception):
        ray.shutdown()


def children(pid: int) -> set[int]:
    """The processes that a process has started, and theirs."""
    found: set[int] = set()
    parents = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            parents[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
    more = {pid}
    while more:
        more = {child for child, parent in parents.items() if parent in more} - found
        found |= more
    return found
