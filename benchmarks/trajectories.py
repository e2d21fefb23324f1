"""How fast trajectories are converted and scored, and how much memory that takes.

    python benchmarks/trajectories.py            # 1 GB, lines and one JSON array
    python benchmarks/trajectories.py --mb 100

Files are made up from random words in the format with actions: three to eight actions of about 800 bytes each. Memory
is the largest sum over all processes of the command, sampled every 50 ms (shared pages are counted in each of them).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path


def make(path: Path, megabytes: int, array: bool) -> int:
    """Write a file of so many megabytes; returns the number of records."""
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(5000)]
    text = lambda n: " ".join(rng.choices(words, k=n))
    pool = [
        {"tool": rng.choice(["search", "reason", "bash"]), "input": text(12), "output": text(120)} for _ in range(2000)
    ]
    count = size = 0
    with path.open("w") as file:
        file.write("[" if array else "")
        while size < megabytes << 20:
            actions = [{"step": i, **a} for i, a in enumerate(rng.choices(pool, k=rng.randint(3, 8)), 1)]
            row = {"task_id": f"t{count}", "domain": "mhqa", "question": text(20), "actions": actions}
            row |= {"final_answer": text(8), "success": rng.random() < 0.5, "metadata": {"seed": count}}
            size += file.write((",\n" if array and count else "") + json.dumps(row) + ("" if array else "\n"))
            count += 1
        file.write("]" if array else "")
    return count


def memory_of(pid: int) -> int:
    """Bytes that a process and its children hold."""
    total = 0
    for process in (pid, *children(pid)):
        try:
            total += int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError):
            continue
    return total


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    try:
        own = [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return own + [c for p in own for c in children(p)]


def measure(*command: str) -> tuple[float, float]:
    """(seconds, peak megabytes) of a command of recollect."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "recollect", *command, "-q"])
    peak = 0

    def watch() -> None:
        nonlocal peak
        while process.poll() is None:
            peak = max(peak, memory_of(process.pid))
            time.sleep(0.05)

    watcher = threading.Thread(target=watch)
    watcher.start()
    assert process.wait() == 0
    watcher.join()
    return time.perf_counter() - start, peak / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=1024)
    parser.add_argument("--forms", nargs="+", default=["jsonl", "json"], choices=["jsonl", "json"])
    parser.add_argument("--folder", type=Path, default=None, help="where files are made; default: a temporary folder")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as place:
        for form in given.forms:
            source, unified = Path(place, f"raw.{form}"), Path(place, f"unified.{form}l".replace("ll", "l"))
            count = make(source, given.mb, form == "json")
            size = source.stat().st_size / 2**20
            converted = measure("convert", str(source), "--domain", "mhqa", "--out", str(unified))
            source.unlink()
            scored = measure("reward", str(unified), "--output", str(Path(place, f"{form}.analysis.json")))
            unified.unlink()
            both = size / (converted[0] + scored[0])
            print(f"{form}: {count} trajectories, {size:.0f} MB")
            for name, (seconds, peak) in (("convert", converted), ("reward", scored)):
                print(f"  {name:8} {seconds:6.1f} s  {size / seconds:6.1f} MB/s  peak {peak:.0f} MB")
            print(f"  both     {both:.1f} MB/s")


if __name__ == "__main__":
    main()
