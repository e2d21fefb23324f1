"""Where a rank is: which one of how many, on which device, and how it meets the others."""

from __future__ import annotations

import os
import socket
import struct
from dataclasses import dataclass

from recollect.dist.machine import LOOPBACK
from recollect.types import BadInput

GET_ADDRESS = 0x8915  # Linux: SIOCGIFADDR


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
    address: str = LOOPBACK  # of its machine, as the others reach it
    listens: int = -1  # in the first rank of several machines: the descriptor where the others meet it

    @property
    def gpu(self) -> int:
        """The number of its GPU."""
        return self.gpus[self.local] if self.gpus else self.local


def meet(place: RankPlace) -> None:
    """Join the process group. It listens on the place's address alone; on one machine that is loopback."""
    import torch
    import torch.distributed as dist
    from datetime import timedelta

    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        os.environ[name] = interface(place.address)
    torch.set_num_threads(place.threads)
    if place.device == "cuda":
        torch.cuda.set_device(place.gpu)
    deadline = timedelta(seconds=place.deadline_s)
    store: dist.Store
    if place.meeting.startswith("tcp://"):
        host, _, port = place.meeting.removeprefix("tcp://").rpartition(":")
        first = place.rank == 0
        listens = place.listens if first else None
        store = dist.TCPStore(host, int(port), place.size, first, deadline, master_listen_fd=listens)
    else:
        store = dist.FileStore(place.meeting, place.size)
    backend = "cpu:gloo,cuda:nccl" if place.device == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=place.rank, world_size=place.size, timeout=deadline)


def interface(address: str) -> str:
    """The name of the network interface that has an address."""
    names = [name for _, name in socket.if_nameindex()]
    if address.startswith("127."):
        return next((name for name in names if name.startswith("lo")), "lo")
    found = next((name for name in names if _address_of(name) == address), None)
    if found is None:
        raise BadInput(f"no network interface of this machine has the address {address}, by which Ray knows it")
    return found


def _address_of(name: str) -> str:
    """The IPv4 address of an interface; empty: it has none."""
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            asked = struct.pack("256s", name[:15].encode())
            return socket.inet_ntoa(fcntl.ioctl(asking.fileno(), GET_ADDRESS, asked)[20:24])
        except OSError:
            return ""
