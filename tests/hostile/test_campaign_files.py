"""A campaign of spoilt files over every reader; RECOLLECT_HOSTILE_FILES says how many, RECOLLECT_HOSTILE_SEED which."""

from __future__ import annotations

import os
import random
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from tests.commands import CONTEXT, end, redirect
from tests.hostile.fuzz import Reader, lay_out, readers, spoil

COUNT = int(os.environ.get("RECOLLECT_HOSTILE_FILES", "500"))
SEED = int(os.environ.get("RECOLLECT_HOSTILE_SEED", "0"))
SECONDS, MEGABYTES = 60, 1024  # of one command, beyond what is imported
PARTLY = ("reward", "convert", "sft-data", "rollout")  # exit code 1: a part was done, and the rest is told


@dataclass(frozen=True)
class Outcome:
    """What a command did with a file."""

    code: int | None  # None: it did not end
    said: str
    megabytes: int

    def wrong(self, reader: Reader) -> str:
        """What must not be; empty when all is well."""
        if self.code is None:
            return f"no end within {SECONDS} s"
        if self.code not in (0, 2) and not (self.code == 1 and reader.command[0] in PARTLY):
            return f"exit code {self.code}"
        if "Traceback" in self.said or "RECOLLECT_DEBUG" in self.said:
            return "a traceback, or an error that nobody expected"
        if self.megabytes > MEGABYTES:
            return f"{self.megabytes} MB"
        if self.code and (reader.folder.partition(".")[0] or reader.name) not in self.said:
            return "the file is not named"
        return ""


def _child(args: Sequence[str], folder: str, out: str) -> None:
    redirect(f"{out}/said", f"{out}/said")
    os.chdir(folder)
    torch.set_num_threads(1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def note() -> None:
        Path(out, "memory").write_text(str((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10))

    end(args, note)


def run(args: Sequence[str], folder: Path) -> Outcome:
    """One command in a process of its own."""
    with tempfile.TemporaryDirectory() as out:
        process = CONTEXT.Process(target=_child, args=(list(args), str(folder), out))
        process.start()
        process.join(SECONDS)
        if process.exitcode is None:
            process.kill()
        code = process.exitcode
        process.join()
        said, memory = Path(out, "said"), Path(out, "memory")
        return Outcome(
            code,
            said.read_text(errors="replace") if said.exists() else "",
            int(memory.read_text()) if memory.exists() else 0,
        )


@pytest.mark.hostile
@pytest.mark.timeout(0)
def test_spoilt_files(tmp_path: Path, small_model: Path) -> None:
    rng = random.Random(SEED)
    kinds = readers(small_model)
    table: Counter[tuple[str, str]] = Counter()
    faults: list[str] = []
    slowest, largest = 0.0, 0
    for number in range(COUNT):
        reader = kinds[number % len(kinds)]
        way, data = spoil(reader, rng)
        folder = tmp_path / str(number)
        folder.mkdir()
        start = time.monotonic()
        outcome = run(lay_out(folder, reader, data, small_model), folder)
        slowest, largest = max(slowest, time.monotonic() - start), max(largest, outcome.megabytes)
        wrong = outcome.wrong(reader)
        table[f"{reader.command[0]} {reader.name}", "wrong" if wrong else f"exit {outcome.code}"] += 1
        if wrong:
            faults.append(f"{number}: {way} {reader.name}, {' '.join(reader.command)}: {wrong}: {outcome.said[-300:]}")
    show(table, slowest, largest)
    assert not faults, "\n".join(faults)


@pytest.mark.hostile
def test_the_files_are_good_before(tmp_path: Path, small_model: Path) -> None:
    for number, reader in enumerate(readers(small_model)):
        folder = tmp_path / str(number)
        folder.mkdir()
        outcome = run(lay_out(folder, reader, reader.data, small_model), folder)
        assert outcome.code == 0, (reader.command, outcome)


def show(table: Counter[tuple[str, str]], slowest: float, largest: int) -> None:
    """A line for each kind of file."""
    outcomes = sorted({outcome for _, outcome in table})
    print(f"\n{'command and file':36}" + "".join(f"{outcome:>9}" for outcome in outcomes))
    for kind in sorted({kind for kind, _ in table}):
        print(f"{kind:36}" + "".join(f"{table[kind, outcome]:9}" for outcome in outcomes))
    print(f"{table.total()} files; the slowest took {slowest:.1f} s, the largest {largest} MB more than at the start")
