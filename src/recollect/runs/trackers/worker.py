"""The process in which one tracker works: it follows a file of metrics until the run lets go of it.

A tracking library may be slow, hang, print, catch signals or fail; here none of that reaches training. The process
sees the end of the run, however it ended, because its standard input closes. Rows are told apart by their kind and
step, and those that were shown are written down: a resumed run shows none twice and catches up on the rest.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from recollect.runs.trackers.chosen_trackers import make_tracker
from recollect.runs.trackers.tracker import About, Tracker
from recollect.runtime.error_text import named_error
from recollect.runtime.secrets import redacted

POLL = 0.5  # seconds between looks at the file
PATIENCE = 30  # seconds to wait for the tracker of the same run's last life
LAST = 60  # seconds to finish in once the run has let go


def label(row: Mapping[str, Any]) -> str:
    """What a row is, the same when a resumed run writes it again."""
    kind = "val" if any(key.startswith("val/") for key in row) else "step"
    return f"{row.get('phase', '')}:{kind}:{row.get('step')}"


def numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a row, without its step."""
    kept = {k: float(v) for k, v in row.items() if isinstance(v, int | float) and k != "step"}
    return {k: v for k, v in kept.items() if math.isfinite(v)}


def follow(path: Path, ended: Callable[[], bool]) -> Iterator[dict[str, Any]]:
    """Complete rows of a file that grows, until ``ended()``, which may wait; one that was cut is read anew."""
    place = 0
    while True:
        last = ended()
        size = path.stat().st_size if path.exists() else 0
        if size < place:
            place = 0
        if size > place:
            with path.open("rb") as file:
                file.seek(place)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    place += len(line)
                    yield json.loads(line)
        if last:
            return


def feed(tracker: Tracker, rows: Iterator[dict[str, Any]], sent: Path) -> None:
    """Show the rows that were not shown before."""
    shown = set(sent.read_text().splitlines()) if sent.exists() else set()
    with sent.open("a") as record:
        for row in rows:
            name = label(row)
            if name in shown:
                continue
            tracker.log(int(row.get("step", 0)), numbers(row))
            shown.add(name)
            record.write(name + "\n")
            record.flush()


def scrub(text: str, environment: Mapping[str, str]) -> str:
    """A text in one line, without keys and passwords."""
    return " ".join(redacted(text, environment).split())[:300]


def _lock(path: Path) -> Any:
    """Hold the tracker's folder; the last life of a killed run may still be writing into it for a moment."""
    file = path.open("w")
    for _ in range(int(PATIENCE / POLL)):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            time.sleep(POLL)
    raise TimeoutError("another process still writes to it")


def main() -> None:
    """Read what to do from the first line of standard input, and do it until there is no more input."""
    job = json.loads(sys.stdin.readline())
    says = os.fdopen(os.dup(1), "w")
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    if not os.environ.get("RECOLLECT_DEBUG"):
        os.dup2(quiet, 2)
    name, folder = job["tracker"], Path(job["folder"])
    about = About(folder, job["project"], job["experiment"], job["config"])
    over = threading.Event()
    threading.Thread(target=_wait_for_the_end, args=(over,), daemon=True).start()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = _lock(folder / "lock")
        tracker = make_tracker(name)
        said = tracker.open(about)
        if said:
            print(json.dumps({"say": said}), file=says, flush=True)
        feed(tracker, follow(Path(job["rows"]), lambda: over.wait(POLL)), folder / "sent")
        tracker.close()
        held.close()
    except BaseException as error:
        problem = scrub(named_error(error), os.environ)
        print(json.dumps({"failed": problem}), file=says, flush=True)
        says.close()
        os._exit(1)  # not through the library's exit handlers, which may wait for a network


def _wait_for_the_end(over: threading.Event) -> None:
    """Note when the run lets go or dies; a library that then hangs does not stay for ever."""
    sys.stdin.read()
    over.set()
    time.sleep(LAST)
    os._exit(1)


if __name__ == "__main__":
    main()
