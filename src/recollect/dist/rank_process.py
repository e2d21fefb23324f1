"""A rank: a process that does its part of every call the driver makes. ``python -m recollect.dist.rank_process FD``.

It listens to the driver on one socket: one that it was born with, or, on another node (``… JOIN ADDRESS:PORT ADDRESS``),
one that it opens to the driver's door. When that closes, however the driver ended, it ends too.
Every second it says that it is alive and how many passes it has done, so that the driver can name a rank that is stuck.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from recollect.dist.channel import Channel, Closed
from recollect.dist.joining import forget_token, knock
from recollect.dist.place import RankPlace
from recollect.types import BadInput

ALIVE_S = 1.0  # between signs of life
ORPHANED = 3  # the exit status of a rank whose driver is gone


class DriverLink:
    """A rank's side of the connection, and what it tells of its progress."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.calls: SimpleQueue[Any] = SimpleQueue()
        self.passes = 0
        self.meeting = ""  # what the driver can no longer remove once it was killed
        for work in (self._listen, self._beat):
            threading.Thread(target=work, daemon=True).start()

    def _listen(self) -> None:
        try:
            while True:
                self.calls.put(self.channel.receive())
        except (Closed, ValueError):
            if self.meeting:
                shutil.rmtree(Path(self.meeting).parent, ignore_errors=True)
            os._exit(ORPHANED)

    def _beat(self) -> None:
        pause = threading.Event()
        with contextlib.suppress(Closed):
            while not pause.wait(ALIVE_S):
                self.channel.send({"alive": self.passes})

    def passed(self, done: int, all_of_them: int) -> None:
        """Say that so many passes of a call are done."""
        self.passes += 1
        with contextlib.suppress(Closed):
            self.channel.send({"passed": [done, all_of_them]})


def main(descriptor: int, listens: int = -1) -> None:
    """Join the others, make the worker, and do what the driver asks for until it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's business
    link = DriverLink(Channel(socket.socket(fileno=descriptor)))
    first = link.calls.get()
    link.meeting = "" if "://" in first["place"]["meeting"] else first["place"]["meeting"]
    place = replace(RankPlace(**first["place"]), listens=listens)
    worker: Any = None
    with _answering(link):
        module, _, name = first["worker"].partition(":")
        worker = getattr(import_module(module), name)(place, first["settings"], link.passed)
        link.channel.send({"done": worker.about()})
    while worker is not None:
        serve(worker, link.channel, link.calls.get(), place.rank == 0)


def serve(worker: Any, channel: Channel, asked: dict[str, Any], first: bool) -> None:
    """Do one call and answer it: what it yields one by one, then what it returns. The first rank's answer is read."""
    with _reporting(channel.send):
        made = worker.call(asked["target"], asked["call"], asked["given"], asked["made"])
        if isinstance(made, Iterator):
            for item in made:
                if first:
                    channel.send({"item": item})
            made = None
        channel.send({"done": made if first else None})


@contextlib.contextmanager
def _answering(link: DriverLink) -> Iterator[None]:
    with _reporting(link.channel.send):
        yield


@contextlib.contextmanager
def _reporting(send: Callable[[Any], None]) -> Iterator[None]:
    """Tell the driver of an error instead of raising it."""
    import torch

    try:
        yield
    except BadInput as error:
        send({"refused": str(error)})
    except torch.OutOfMemoryError as error:
        send({"memory": str(error).split("\n")[0]})
    except Closed:
        raise
    except Exception as error:
        import traceback

        traceback.print_exc()
        send({"failed": [type(error).__name__, " ".join(str(error).split())]})


def join(door: str, address: str) -> None:
    """Come to the driver's door, with a socket at which other ranks may meet this one, and do what the driver asks for."""
    listening = socket.create_server((address, 0), backlog=1024)
    end = knock(door, os.environ, listening.getsockname()[1])
    forget_token()
    main(end.detach(), listening.detach())


if __name__ == "__main__":
    if sys.argv[1] == "JOIN":
        join(*sys.argv[2:])
    else:
        main(int(sys.argv[1]))
