"""Weights by broadcast: what the sender and the workers of vLLM servers have in common. It needs torch alone.

Weights travel in buckets: flat bytes with the name, type, shape and place of every tensor in them, and a checksum that
is the same on every device.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

BUCKET_BYTES = 256 << 20  # of tensors in a bucket; a receiver has so much in memory at once
ALIGN = 16  # bytes; every tensor begins at a multiple of it
WORDS = 1 << 16  # that are summed up at once
ODD = 0x9E3779B97F4A7C15


@dataclass(frozen=True)
class Meeting:
    """Where the members of a group meet. The sender is the first of them."""

    address: str  # of the sender
    port: int
    rank: int
    size: int
    host: str  # the member's own address, as the others reach it
    limit_s: float  # for all members to meet, and to take part in the broadcast of a bucket
    device: str = "cpu"


class BroadcastGroup:
    """A process group beside whatever groups its process has. Members join it all at the same time.

    A collective that goes wrong may end the process of a member.
    """

    def __init__(self, meeting: Meeting, listening: socket.socket | None = None) -> None:
        """``listening`` is where the sender meets the others."""
        self.limit = limit = timedelta(seconds=meeting.limit_s)
        at = None if listening is None else listening.detach()
        store = dist.TCPStore(
            meeting.address, meeting.port, None, at is not None, limit, wait_for_workers=False, master_listen_fd=at
        )
        self.device = torch.device(meeting.device)
        self.group = (_nccl if self.device.type == "cuda" else _gloo)(store, meeting, limit)

    def broadcast(self, flat: torch.Tensor) -> None:
        """Give the first member's bytes to all; RuntimeError when one of them does not take part in time."""
        options = dist.BroadcastOptions()
        options.rootRank = options.rootTensor = 0
        self.group.broadcast([flat], options).wait(self.limit)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def close(self) -> None:
        """Leave the group."""
        self.group = None


def _gloo(store: dist.Store, meeting: Meeting, limit: timedelta) -> Any:
    from torch._C._distributed_c10d import ProcessGroupGloo

    options: Any = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._timeout, options._threads = limit, 2
    options._devices = [ProcessGroupGloo.create_device(hostname=meeting.host)]
    return ProcessGroupGloo(store, meeting.rank, meeting.size, options)


def _nccl(store: dist.Store, meeting: Meeting, limit: timedelta) -> Any:
    """It has not been tried: there was no second GPU."""
    from torch._C._distributed_c10d import ProcessGroupNCCL

    os.environ["TORCH_NCCL_BLOCKING_WAIT"] = "1"  # a member that is late is an error, not the end of this process
    options = ProcessGroupNCCL.Options()
    options._timeout = limit
    return ProcessGroupNCCL(store, meeting.rank, meeting.size, options)


# ---- buckets ----


@dataclass(frozen=True)
class WeightBucket:
    """Some tensors as flat bytes."""

    flat: torch.Tensor
    tensors: list[list[Any]]  # name, type, shape and first byte of each
    checksum: str

    def about(self) -> dict[str, Any]:
        """What a receiver has to know before."""
        return {"bytes": len(self.flat), "tensors": self.tensors, "checksum": self.checksum}


def buckets(weights: Iterable[tuple[str, torch.Tensor]]) -> Iterator[WeightBucket]:
    """The weights, which are in host memory, in buckets."""
    part: list[tuple[str, torch.Tensor]] = []
    size = 0
    for name, weight in weights:
        part.append((name, weight))
        size += _room(weight)
        if size >= BUCKET_BYTES:
            yield _packed(part, size)
            part, size = [], 0
    if part:
        yield _packed(part, size)


def unpacked(flat: torch.Tensor, tensors: Sequence[Sequence[Any]]) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors in the bytes of a bucket, without copies."""
    for name, kind, shape, start in tensors:
        dtype: torch.dtype = getattr(torch, kind)
        count = dtype.itemsize
        for length in shape:
            count *= length
        yield name, flat[start : start + count].view(dtype).reshape(shape)


def checksum(flat: torch.Tensor) -> str:
    """A sum over bytes in which every place counts otherwise."""
    words = flat.view(torch.int64)
    factors = torch.arange(WORDS, device=flat.device) * (ODD - (1 << 64)) | 1
    total = len(flat)
    for start in range(0, len(words), WORDS):
        part = words[start : start + WORDS]
        total = (total * ODD + int((part * factors[: len(part)]).sum())) % (1 << 64)
    return f"{total:016x}"


def _room(weight: torch.Tensor) -> int:
    size = weight.numel() * weight.element_size()
    return size + -size % ALIGN


def _packed(part: Sequence[tuple[str, torch.Tensor]], size: int) -> WeightBucket:
    flat, tensors, start = torch.zeros(size, dtype=torch.uint8), [], 0
    for name, weight in part:
        count = weight.numel() * weight.element_size()
        flat[start : start + count] = weight.contiguous().reshape(-1).view(torch.uint8)
        tensors.append([name, str(weight.dtype).removeprefix("torch."), list(weight.shape), start])
        start += _room(weight)
    return WeightBucket(flat, tensors, checksum(flat))


# ---- the receiver ----


def received(group: BroadcastGroup, about: dict[str, Any], device: torch.device) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of the bucket that is broadcast now; ValueError if they are not those that were sent."""
    flat = torch.empty(int(about["bytes"]), dtype=torch.uint8, device=device)
    group.broadcast(flat)
    if checksum(flat) != about["checksum"]:
        raise ValueError("weights did not arrive as they were sent")
    return unpacked(flat, about["tensors"])
