"""Ranks start, answer, and end: all together, whatever happens to one of them."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from recollect.dist import ranks as module
from recollect.dist.place import RankPlace
from recollect.dist.ranks import RankFailed, RankLost, Ranks
from recollect.types import BadInput
from tests.dist.forked import forking

WORKER = "tests.dist.worker:Worker"
ROOT = Path(__file__).parents[2]


def place(size: int = 2, deadline_s: float = 30.0) -> RankPlace:
    return RankPlace(0, size, 0, "cpu", size, 1, "", deadline_s)


def gone(pids: list[int]) -> bool:
    for _ in range(100):
        left = [pid for pid in pids if Path(f"/proc/{pid}/stat").exists() and " Z " not in state(pid)]
        if not left:
            return True
        time.sleep(0.1)
    return False


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return " Z "


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Ranks:
    forking(monkeypatch)
    monkeypatch.setattr(module, "SILENT_S", 2.0)
    return Ranks(WORKER, None, place())


def test_calls_go_to_all_and_the_first_answers(ranks: Ranks) -> None:
    passed: list[tuple[int, int]] = []
    assert ranks.about == "0 of 2"
    assert ranks.call(0, "sum", {"numbers": [1, 2]}, passed=lambda *given: passed.append(given)) == 3
    assert passed == [(1, 1)]
    assert list(ranks.stream(0, "items", {"count": 3})) == [0, 1, 2]
    pids = [m.process.pid for m in ranks.members]
    ranks.close()
    assert ranks.closed
    assert gone(pids)
    assert not Path(ranks.folder).exists()


def test_errors_come_back_and_the_ranks_go_on(ranks: Ranks) -> None:
    with pytest.raises(BadInput, match="not so"):
        ranks.call(0, "fail", {"rank": -1})
    with pytest.raises(RankFailed, match="KeyError: 'no such thing'"):
        ranks.call(0, "fail", {"rank": 1})
    assert ranks.call(0, "sum", {"numbers": [4]}) == 4
    ranks.close()


def test_what_they_refuse_at_the_start_is_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    forking(monkeypatch)
    with pytest.raises(BadInput, match="this cannot work"):
        Ranks(WORKER, "refuse", place())


def test_a_killed_rank_ends_all(ranks: Ranks) -> None:
    pids = [m.process.pid for m in ranks.members]
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(RankLost, match=rf"rank 1 .process {pids[1]}. ended in sleep .killed by signal 9"):
        ranks.call(0, "sleep", {"rank": 0})
    assert gone(pids)


@pytest.mark.parametrize(("how", "said"), [("stop", "has said nothing"), ("sleep", "is alive, but has not gone on")])
def test_a_rank_that_is_stuck_is_named(ranks: Ranks, how: str, said: str) -> None:
    ranks.deadline_s = 3.0
    pids = [m.process.pid for m in ranks.members]
    with pytest.raises(RankLost, match=rf"rank 1 .process {pids[1]}. {said}.* for 3 s in {how}"):
        ranks.call(0, how, {"rank": 1})
    assert gone(pids)


def test_a_rank_that_takes_nothing_in_is_named(ranks: Ranks) -> None:
    """A call with more bytes than a socket holds, to a rank that is stopped, does not wait for ever."""
    pids = [m.process.pid for m in ranks.members]
    for member in ranks.members:
        member.channel.limit(1.0)
    os.kill(pids[1], signal.SIGSTOP)
    with pytest.raises(RankLost, match=rf"rank 1 .process {pids[1]}. hangs in sum: it has taken or given nothing for 1 s"):
        ranks.call(0, "sum", {"numbers": [1] * 10_000_000})
    assert gone(pids)


def message(text: bytes) -> str:
    return (struct.pack("<Q", len(text)) + text).decode("latin-1")


@pytest.mark.parametrize(
    "data",
    [
        "garbage, and a lot of it",
        message(b"{"),
        message(struct.pack("<Q", 1 << 40) + b"{}"),
        message(struct.pack("<Q", 4) + b"null"),
        message(struct.pack("<Q", 19) + b'{"dict":[["alive",["x"]]]}'[:19]),
        message(struct.pack("<Q", 30) + b'{"array":["<f4",[1000000],0]}  '[:30]),
        message(struct.pack("<Q", 46) + b'{"class": ["recollect.__main__", "main", {}]} '),
        message(struct.pack("<Q", 32) + b'{"dict": [["alive", "for ever"]]}'[:32]),
        message(b"[" * 200_000),
    ],
)
def test_a_rank_that_sends_garbage_is_lost(data: str, ranks: Ranks) -> None:
    pids = [m.process.pid for m in ranks.members]
    with pytest.raises(RankLost, match=rf"rank 1 .process {pids[1]}. sent what cannot be read in write: "):
        ranks.call(0, "write", {"rank": 1, "data": data})
    assert gone(pids)


def test_a_message_that_breaks_off_in_the_middle_is_not_waited_for(ranks: Ranks) -> None:
    for member in ranks.members:
        member.channel.limit(1.0)
    with pytest.raises(RankLost, match="hangs in write: it has taken or given nothing for 1 s"):
        ranks.call(0, "write", {"rank": 1, "data": message(b"x" * 100)[:50]})


def test_a_stream_that_nobody_reads_to_its_end_ends_the_ranks(ranks: Ranks) -> None:
    stream = ranks.stream(0, "items", {"count": 3})
    assert next(stream) == 0
    stream.close()
    assert ranks.closed


PROGRAM = f"""
import sys, time
from recollect.dist.place import RankPlace
from recollect.dist.ranks import Ranks
ranks = Ranks({WORKER!r}, None, RankPlace(0, 2, 0, "cpu", 2, 1, "", 30.0))
print(*[m.process.pid for m in ranks.members], flush=True)
ranks.call(0, "sleep", {{"rank": 0}})
"""


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_of_ranks_whose_driver_ends(sign: signal.Signals, tmp_path: Path) -> None:
    env = dict(os.environ, PYTHONPATH=os.pathsep.join([str(ROOT / "src"), str(ROOT)]), TMPDIR=str(tmp_path))
    driver = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    assert driver.stdout is not None
    pids = [int(word) for word in driver.stdout.readline().split()]
    assert len(pids) == 2
    driver.send_signal(sign)
    driver.communicate(timeout=30)
    assert gone(pids)
    assert [p.name for p in tmp_path.iterdir()] == []
