"""Ranks that are forked from the test's own process, which has everything imported: they start at once."""

from __future__ import annotations

import multiprocessing
import os
import socket
import subprocess
import tempfile
from collections.abc import Callable
from typing import Any

import pytest

from recollect.dist import rank_process, ranks
from recollect.dist.channel import Channel
from recollect.dist.place import RankPlace
from recollect.dist.rank_member import LocalProcess, RankMember

CONTEXT = multiprocessing.get_context("fork")


class Forked:
    """A forked process with what `ranks` asks of one."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.process = CONTEXT.Process(target=work, daemon=True)
        self.process.start()
        self.pid = self.process.pid

    @property
    def returncode(self) -> int | None:
        return self.process.exitcode

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self, seconds: float) -> None:
        self.process.join(seconds)
        if self.process.exitcode is None:
            raise subprocess.TimeoutExpired("rank", seconds)

    def kill(self) -> None:
        self.process.kill()


def forking(monkeypatch: pytest.MonkeyPatch, before: Callable[[RankPlace], Any] = lambda place: None) -> None:
    """Let ranks be forked; ``before`` is called in each of them."""

    def start(place: RankPlace) -> Any:
        mine, theirs = socket.socketpair()
        said = tempfile.TemporaryFile()  # noqa: SIM115

        def work() -> None:
            for stream in (1, 2):
                os.dup2(said.fileno(), stream)
            mine.close()
            before(place)
            rank_process.main(theirs.detach())

        process: Any = Forked(work)
        theirs.close()
        return RankMember(place, LocalProcess(process, said), Channel(mine))

    monkeypatch.setattr(ranks, "start_here", start)
