"""Where a rank is: which one of how many, on which device, and how it meets the others."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class RankPlace:
    """One rank's place."""

    rank: int
    size: int  # ranks in all
    local: int  # its number on its machine
    device: str  # cpu or cuda
    shards: int  # ranks that share the weights; so many times fewer copies there are
    threads: int  # CPU threads to compute with
    meeting: str  # a file that all of them see, or tcp://address:port
    deadline_s: float  # how long one waits for the others
    gpus: tuple[int, ...] = ()  # those of its machine's ranks, by their numbers there

    @property
    def gpu(self) -> int:
        """The number of its GPU."""
        return self.gpus[self.local] if self.gpus else self.local


def meet(place: RankPlace) -> None:
    """Join the process group. On one machine nothing of it can be reached from outside."""
    import torch
    import torch.distributed as dist
    from datetime import timedelta

    alone = not place.meeting.startswith("tcp://")
    if alone:
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            os.environ[name] = loopback()
    torch.set_num_threads(place.threads)
    if place.device == "cuda":
        torch.cuda.set_device(place.gpu)
    backend = "cpu:gloo,cuda:nccl" if place.device == "cuda" else "gloo"
    deadline = timedelta(seconds=place.deadline_s)
    if alone:
        store = dist.FileStore(place.meeting, place.size)
        dist.init_process_group(backend, store=store, rank=place.rank, world_size=place.size, timeout=deadline)
    else:
        dist.init_process_group(
            backend, init_method=place.meeting, rank=place.rank, world_size=place.size, timeout=deadline
        )


def loopback() -> str:
    """The name of the interface that only this machine sees."""
    import socket

    names = [name for _, name in socket.if_nameindex()]
    return next((name for name in names if name.startswith("lo")), "lo")
