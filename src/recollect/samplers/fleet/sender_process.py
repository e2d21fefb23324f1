"""The process that broadcasts weights: ``python -m recollect.samplers.fleet.sender_process FD``.

A collective that goes wrong may end its process, so it is not the one that trains. It is told by its owner, on a socket
that only the two of them have, where to meet the servers and what to send, and ends with its owner. The bytes are in
memory that both see.
"""

from __future__ import annotations

import json
import mmap
import os
import socket
import sys
import threading
from queue import SimpleQueue
from typing import Any

import torch

from recollect.samplers.fleet.inside.recollect_broadcast import BroadcastGroup, Meeting

MOST = 1 << 20  # bytes of a message

Told = tuple[dict[str, Any], int]  # a message, and the descriptor that came with it


def listen(end: socket.socket, told: SimpleQueue[Told]) -> None:
    """Take messages until the owner is gone, whatever goes on meanwhile."""
    while True:
        data, descriptors, _, _ = socket.recv_fds(end, MOST, 1)
        if not data:
            os._exit(0)
        told.put((json.loads(data), descriptors[0]))


def send(group: BroadcastGroup, descriptor: int, sizes: list[int]) -> None:
    """Broadcast bucket after bucket."""
    with mmap.mmap(descriptor, sum(sizes), prot=mmap.PROT_READ | mmap.PROT_WRITE) as memory:
        flat = torch.frombuffer(memory, dtype=torch.uint8)
        for part in flat.split(sizes):
            group.broadcast(part.to(group.device))
        del flat, part
    os.close(descriptor)


def main(descriptor: int) -> None:
    """Meet the servers, then send what the owner asks for."""
    end = socket.socket(fileno=descriptor)
    told: SimpleQueue[Told] = SimpleQueue()
    threading.Thread(target=listen, args=(end, told), daemon=True).start()
    group: BroadcastGroup | None = None
    while True:
        message, given = told.get()
        answer = {"done": True}
        try:
            if group is None:
                group = BroadcastGroup(Meeting(**message), socket.socket(fileno=given))
            else:
                send(group, given, message["sizes"])
        except Exception as error:
            answer = {"failed": " ".join(str(error).split())[:300]}  # type: ignore[dict-item]
        end.sendall(json.dumps(answer).encode())


if __name__ == "__main__":
    main(int(sys.argv[1]))
