"""The Ray cluster that a run is part of: connecting to it, what its nodes have, and leaving it.

`ray` is imported inside functions alone: without several nodes nobody needs it.
"""

from __future__ import annotations

import logging
import os
import socket
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from recollect.dist.machine import LOOPBACK
from recollect.runtime.address import is_address
from recollect.types import BadInput

REACH_S = 5.0  # for the head of the cluster to answer
HEAD = "the head of a Ray cluster is named by RAY_ADDRESS, or found on this machine after `ray start`"


@dataclass(frozen=True)
class NodeFacts:
    """One node of the cluster: where it is, and what Ray may give away there."""

    name: str  # Ray's
    address: str
    cpus: float
    gpus: float
    memory: int  # bytes


class RayCluster:
    """A connection to the cluster; this process is a part of it until `close`."""

    def __init__(self, ours: bool) -> None:
        self.ours = ours  # False: somebody else in this process has connected, and leaves

    @property
    def here(self) -> str:
        """Where the other nodes reach this one; loopback when all of them are one machine."""
        import ray

        mine = str(ray.util.get_node_ip_address())
        return LOOPBACK if {node.address for node in self.nodes()} <= {mine} else mine

    def nodes(self) -> list[NodeFacts]:
        """The nodes that are there now, in the order of their addresses."""
        import ray

        found = [node for node in ray.nodes() if node["Alive"]]
        return sorted((_facts(node) for node in found), key=lambda node: (node.address, node.name))

    def close(self) -> None:
        """Leave the cluster; what this process has there ends."""
        import ray

        if self.ours and ray.is_initialized():
            ray.shutdown()


def connect(needed_by: str) -> RayCluster:
    """Join the cluster as a driver. ``needed_by`` is the setting that asks for it; BadInput where there is none."""
    if find_spec("ray") is None:
        raise BadInput(f"{needed_by} needs Ray, which is not installed: pip install 'recollect-rl[ray]'")
    import ray

    if ray.is_initialized():
        return RayCluster(ours=False)
    address = head_address(os.environ)
    if address.startswith("ray://"):
        raise BadInput(f"RAY_ADDRESS={address}: a run is part of the cluster; start it there with `ray job submit`")
    if is_address(address):
        raise BadInput(
            f"RAY_ADDRESS={address} is where `ray job submit` sends jobs; a run itself needs the head, HOST:6379, or no "
            "RAY_ADDRESS on a node of the cluster"
        )
    refuse_unreachable(address, needed_by)
    try:
        ray.init(address=address or "auto", log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError, SystemExit) as error:
        said = " ".join(str(error).split())[:200]
        raise BadInput(f"{needed_by} needs a Ray cluster, and none can be joined ({said}); {HEAD}") from None
    _hush()
    return RayCluster(ours=True)


def _hush() -> None:
    """Ray prints pages of its own logs to standard output when a node is lost; the run says that in a line."""
    with suppress(ImportError):
        from ray._private import worker

        worker._worker_logs_enabled = False


def head_address(environment: Mapping[str, str]) -> str:
    """The address of the head, HOST:PORT; empty: nobody has said it."""
    if (named := environment.get("RAY_ADDRESS", "")) and named != "auto":
        return named
    folder = Path(environment.get("RAY_TMPDIR") or tempfile.gettempdir())
    try:
        return (folder / "ray" / "ray_current_cluster").read_text().strip()
    except OSError:
        return ""


def refuse_unreachable(address: str, needed_by: str) -> None:
    """Refuse a head that does not answer; Ray itself would try for minutes and then end the process."""
    host, _, port = address.rpartition(":")
    if not address or address == "local":
        raise BadInput(f"{needed_by} needs a Ray cluster, and none runs here; {HEAD}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"{needed_by} needs a Ray cluster, and {address} does not answer ({why}); {HEAD}") from None


def _facts(node: Mapping[str, Any]) -> NodeFacts:
    has = node["Resources"]
    return NodeFacts(
        str(node["NodeID"]),
        str(node["NodeManagerAddress"]),
        float(has.get("CPU", 0)),
        float(has.get("GPU", 0)),
        int(has.get("memory", 0)),
    )
