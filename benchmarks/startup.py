"""How long a user waits before anything happens: `import recollect` and `recollect --help`.

A command that takes a second to print its help feels broken, and one heavy import at the top of a module is enough to
cause it. Each measurement is a fresh interpreter, so nothing is warm but the file cache.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

CASES = (
    ("python -c pass", [sys.executable, "-c", "pass"], None),
    ("import recollect", [sys.executable, "-c", "import recollect"], 0.3),
    ("recollect --help", [sys.executable, "-m", "recollect", "--help"], 0.5),
)


def seconds(command: list[str]) -> float:
    """Wall-clock time of one run of a command."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    """Print the best time of each case, beside its target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5, help="runs of each; the best counts")
    repeats = parser.parse_args().repeats
    print(f"{'what':<18} {'seconds':>8} {'target':>8}")
    for name, command, target in CASES:
        best = min(seconds(command) for _ in range(repeats))
        verdict = "" if target is None else f"≤ {target:.1f} s  {'ok' if best <= target else 'MISSED'}"
        print(f"{name:<18} {best:>8.3f} {verdict:>8}", flush=True)


if __name__ == "__main__":
    main()
