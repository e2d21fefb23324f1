"""Weights by broadcast into the servers' memory: gloo between processes on CPUs, NCCL between GPUs.

All servers are in one group. When something goes wrong with it, each server gets the weights in a group of its own, so
that one that hangs or breaks holds up no other. The newest version stays in host memory for servers that come back.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

import torch

from recollect.runtime.error_text import error_text
from recollect.runtime.threads import in_thread
from recollect.samplers.fleet.inside.recollect_broadcast import Meeting, buckets, unpacked
from recollect.samplers.fleet.vllm_client import RequestRefused, ServerFailed, VllmClient, moving
from recollect.samplers.fleet.weight_sender import WeightSender
from recollect.samplers.sampler import NamedWeights

if TYPE_CHECKING:
    from torch import Tensor

OPERATION_S = 30.0  # for all members of a group to meet, and to take part in the broadcast of a bucket


class SentWeights:
    """One version in host memory that the sender can be given."""

    def __init__(self, version: int, weights: NamedWeights) -> None:
        self.version = version
        self.memory = memory()
        self.buckets: list[dict[str, Any]] = []  # what receivers have to know of each
        for bucket in buckets(weights):
            self.memory.write(bucket.flat.numpy().data)
            self.buckets.append(bucket.about())
        self.memory.flush()
        digest = hashlib.sha256(json.dumps(self.buckets).encode()).hexdigest()
        self.label = f"{version}-{digest[:12]}"

    @property
    def sizes(self) -> list[int]:
        """Bytes of each bucket."""
        return [bucket["bytes"] for bucket in self.buckets]

    @property
    def size(self) -> int:
        """Bytes in all."""
        return sum(self.sizes)

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every weight by name."""
        start = 0
        for bucket in self.buckets:
            data = bytearray(os.pread(self.memory.fileno(), bucket["bytes"], start))
            yield from unpacked(torch.frombuffer(data, dtype=torch.uint8), bucket["tensors"])
            start += len(data)


def memory() -> IO[bytes]:
    """A file in memory, where there are such files; it is gone when nobody has it open."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("recollect-weights"), "w+b")
    return tempfile.TemporaryFile()


class WeightsByBroadcast:
    """`rollout.weight_sync=broadcast`. ``device`` is what both sides compute on."""

    probe = ""

    def __init__(self, dtype: torch.dtype, device: str) -> None:
        self.dtype, self.device = dtype, device
        self.sender: WeightSender | None = None  # to all servers
        self.members: tuple[VllmClient, ...] = ()

    def open(self) -> None:
        """Nothing is needed before."""

    def refuse(self, about: Mapping[str, Any]) -> str:
        """Nothing has to be shared."""
        return ""

    def keep(self, version: int, weights: NamedWeights) -> SentWeights:
        """Copy a version to host memory."""
        return SentWeights(version, self._converted(weights))

    def _converted(self, weights: NamedWeights) -> Iterator[tuple[str, Tensor]]:
        for name, weight in weights:
            kind = self.dtype if weight.is_floating_point() else weight.dtype
            yield name, weight.detach().to("cpu", kind)

    async def give(self, clients: Sequence[VllmClient], weights: SentWeights) -> list[BaseException | None]:
        """Have servers load a version; what went wrong with each of them."""
        if len(clients) > 1:
            try:
                await self._together(clients, weights)
                return [None] * len(clients)
            except (ServerFailed, RequestRefused, OSError):
                self.clear()  # whoever it was is found when each of them is alone
        return await asyncio.gather(*(self._alone(client, weights) for client in clients), return_exceptions=True)

    async def _together(self, clients: Sequence[VllmClient], weights: SentWeights) -> None:
        if self.sender is None or self.members != tuple(clients):
            self.clear()
            self.sender, self.members = await joined(clients, self.device), tuple(clients)
        await send(self.sender, clients, weights)

    async def _alone(self, client: VllmClient, weights: SentWeights) -> None:
        if client in self.members:
            self.clear()  # a server is in one group at a time
        try:
            sender = await joined([client], self.device)
            try:
                await send(sender, [client], weights)
            finally:
                sender.close()
        except OSError as error:
            raise ServerFailed(f"it could not join a broadcast: {error_text(error)}") from None

    def drop_old(self) -> None:
        """A version is forgotten when nobody holds it any more."""

    def clear(self) -> None:
        """Leave the group of all servers."""
        sender, self.sender, self.members = self.sender, None, ()
        if sender is not None:
            sender.close()


async def joined(clients: Sequence[VllmClient], device: str) -> WeightSender:
    """A group of a sender and the workers of some servers. All of them join at once."""
    hosts = [urlsplit(client.url).hostname or "" for client in clients]
    mine = [await in_thread(address_toward, {"host": host}) for host in hosts]
    here = next((address for address in mine if not address.startswith("127.")), mine[0])
    listening = socket.create_server((here, 0), backlog=1024)
    port, size = listening.getsockname()[1], 1 + sum(client.workers for client in clients)
    asked, first = [], 1
    for client, host in zip(clients, hosts, strict=True):
        about = {"address": here, "port": port, "first": first, "size": size, "limit_s": OPERATION_S}
        asked.append(client.join(about | {"host": socket.gethostbyname(host)}))
        first += client.workers
    sender = WeightSender()
    meeting = Meeting(here, port, 0, size, here, OPERATION_S, device)
    try:
        await all_of(in_thread(sender.join, {"meeting": meeting, "listening": listening}), *asked)
    except BaseException:
        sender.close()
        raise
    return sender


async def send(sender: WeightSender, clients: Sequence[VllmClient], weights: SentWeights) -> None:
    """Broadcast a version to the servers of a group, which load it and say so."""
    handovers = await all_of(*(client.begin() for client in clients))
    about, seconds = {"buckets": weights.buckets}, moving(weights)
    given = {"memory": weights.memory.fileno(), "sizes": weights.sizes, "seconds": seconds}
    loading = (client.update(handover, about, seconds) for client, handover in zip(clients, handovers, strict=True))
    await all_of(in_thread(sender.send, given), *loading)
    await all_of(*(client.finish(weights) for client in clients))


async def all_of(*works: Any) -> list[Any]:
    """What all of some works give; the first that fails ends the wait, and the others are dropped."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        return [task.result() for task in tasks if task.done()]
    finally:
        for task in tasks:
            task.cancel()


def address_toward(host: str) -> str:
    """The address of this machine by which another one reaches it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.connect((host, 9))
        return str(asking.getsockname()[0])
