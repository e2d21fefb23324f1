"""What broadcasts weights to a group of servers, as the run has it: a process of its own, which may be lost."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import weakref
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from recollect.dist.rank_member import LocalProcess, environment
from recollect.samplers.fleet.inside.recollect_broadcast import Meeting
from recollect.samplers.fleet.sender_process import MOST
from recollect.samplers.fleet.vllm_client import ServerFailed


class WeightSender:
    """A group of which this run's sender is the first member. It ends with this process."""

    def __init__(self) -> None:
        self.end, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        said = tempfile.TemporaryFile()  # noqa: SIM115
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "recollect.samplers.fleet.sender_process", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
                env=environment(1),
            )
        self.process = LocalProcess(process, said)
        self.close = weakref.finalize(self, end, self.process, self.end)

    def join(self, meeting: Meeting, listening: socket.socket) -> None:
        """Meet the other members."""
        with listening:
            self._ask(asdict(meeting), listening.fileno(), meeting.limit_s * 2)

    def send(self, memory: int, sizes: list[int], seconds: float) -> None:
        """Broadcast what is in some memory, in buckets of these sizes."""
        self._ask({"sizes": sizes}, memory, seconds)

    def _ask(self, message: dict[str, Any], descriptor: int, seconds: float) -> None:
        self.end.settimeout(seconds)
        try:
            socket.send_fds(self.end, [json.dumps(message).encode()], [descriptor])
            answer = self.end.recv(MOST)
        except OSError as error:
            raise ServerFailed(f"the broadcast of weights broke off: {error}") from None
        said = json.loads(answer) if answer else {"failed": f"its process ended ({self.process.ended() or 'just now'})"}
        if "failed" in said:
            raise ServerFailed(f"the broadcast of weights broke off: {said['failed']}")


def end(process: LocalProcess, own: socket.socket) -> None:
    """End a sender. Whoever waits for its answer is told that it is gone."""
    process.kill()
    with suppress(OSError):
        own.shutdown(socket.SHUT_RDWR)
    process.close()
