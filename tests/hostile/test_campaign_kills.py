"""A campaign of kills: short runs that die at random moments, without warning, and are run again to their end.

RECOLLECT_HOSTILE_KILLS says how many kills there are; each run is killed a few times.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.commands import CONTEXT
from tests.training import killing
from tests.training.test_resume import BEST, KL, SAMPLED, SFT, assert_same, command

KILLS = int(os.environ.get("RECOLLECT_HOSTILE_KILLS", "100"))
SEED = int(os.environ.get("RECOLLECT_HOSTILE_SEED", "0"))
RUNS = {"RL": [*KL, *BEST, *SAMPLED], "SFT, then RL": [*KL, *SFT]}
EACH = 5  # kills of one run
CLOCK = "any moment"


def killed_by_clock(args: Sequence[str], log: Path, seconds: float) -> int:
    """Run a command and kill it after some time, wherever it is; the exit code."""
    process = CONTEXT.Process(target=killing._child, args=(list(args), str(log), "", 0))
    process.start()
    process.join(seconds)
    if process.exitcode is None and process.pid is not None:
        os.kill(process.pid, signal.SIGKILL)
    process.join(240)
    assert process.exitcode is not None, "the run hangs"
    return process.exitcode


@pytest.mark.hostile
@pytest.mark.timeout(0)
def test_killed_runs_end_like_others(tmp_path: Path, small_model: Path) -> None:
    rng, table = random.Random(SEED), Counter[tuple[str, str]]()
    for name, settings in RUNS.items():
        whole = tmp_path / name.replace(", ", "-").replace(" ", "-")
        make = lambda out, settings=settings: command(out, small_model, *settings)
        start, log = time.monotonic(), whole.with_suffix(".log")
        assert killing.run(make(whole), log) == 0, log.read_text()
        took, counts = time.monotonic() - start, killing.moments(log)
        share = KILLS // 2 if name == "RL" else KILLS - KILLS // 2
        while share > 0:
            out = tmp_path / "killed"
            for _ in range(min(EACH, share)):
                kind = rng.choice((CLOCK, *(k for k in killing.KINDS if counts.get(k))))
                if kind == CLOCK:
                    code = killed_by_clock(make(out), log, rng.uniform(0.1, took))
                else:
                    code = killing.run(make(out), log, kind, rng.randint(1, max(1, counts[kind] // 2)))
                assert code in (0, -signal.SIGKILL), log.read_text()
                table[f"{name}: {kind}", "killed" if code else "had ended before"] += 1
                if code == 0:
                    break
                share -= 1
            assert killing.run(make(out), log) == 0, log.read_text()
            assert_same(whole, out, best=settings is RUNS["RL"])
            table[f"{name}: all", "identical runs"] += 1
            shutil.rmtree(out)
    show(table)


def show(table: Counter[tuple[str, str]]) -> None:
    """A line for each kind of moment."""
    outcomes = ("killed", "had ended before", "identical runs")
    print(f"\n{'killed at':36}" + "".join(f"{outcome:>18}" for outcome in outcomes))
    for kind in sorted({kind for kind, _ in table}):
        print(f"{kind:36}" + "".join(f"{table[kind, outcome]:18}" for outcome in outcomes))
