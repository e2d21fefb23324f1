"""Whether reading stays flat: seconds per section and memory, as documents grow from 16 sections to 1024.

A recurrent memory agent reads any length with the same small context, so a section should cost the same wherever in the
document it is, and the reader's memory should not grow with what has been read. What does grow is the record of the
trajectory (every turn's ids, kept for training and for looking at); this says how much that is, and what is left when
the trajectories are let go.
"""

from __future__ import annotations

import argparse
import gc
import os
import time

from transformers.utils.logging import disable_progress_bar

import recollect.cli  # noqa: F401  sets the environment that a run has, before torch is loaded
from recollect.agents.rollout import Collector
from recollect.config import Config
from recollect.config.compose import compose
from recollect.eval.evaluate import evaluate
from recollect.tasks.needle import make_task, shape_of
from recollect.training.setup import TrainedPolicy, build
from recollect.types import Group, Task

TARGET = 1.1
PAGE = os.sysconf("SC_PAGE_SIZE")
MIB = 1 << 20


def resident() -> float:
    """Resident memory of this process in MiB."""
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE / MIB


def documents(cfg: Config, chunks: int, count: int) -> list[Task]:
    """Held-out documents of so many sections."""
    shape = shape_of(cfg, chunks, held_out=True)
    return [make_task(7_777, i, "held_out", shape) for i in range(count)]


def read(collector: Collector, tasks: list[Task]) -> tuple[float, list[Group]]:
    """Seconds per section when all documents are read side by side, and what was recorded."""
    start = time.perf_counter()
    groups = evaluate(collector, tasks, "val")
    seconds = time.perf_counter() - start
    trajectories = [t for g in groups for t in g.trajectories]
    broken = [t.failure for t in trajectories if t.failure is not None]
    assert not broken, f"a reader failed: {broken[0]}"
    return seconds / max(len(t.turns) for t in trajectories), groups


def prefix_mib(parts: TrainedPolicy) -> float:
    """Memory of the keys and values that the engine keeps for reuse."""
    return parts.sampler.scheduler.prefixes.tokens * parts.sampler.backend.cache.token_bytes / MIB


def measure(cfg: Config, parts: TrainedPolicy, chunks: int, args: argparse.Namespace) -> float:
    """Print one length's row and return its seconds per section, a mean over as many sections for each length."""
    collector = Collector(cfg, parts.roles())
    tasks = documents(cfg, chunks, args.documents)
    repeats = max(1, min(args.repeats, args.most_chunks // chunks))
    total, before = 0.0, resident()
    for _ in range(repeats):
        parts.sampler.new_weights(0)  # nothing read earlier helps
        groups: list[Group] = []
        seconds, groups = read(collector, tasks)
        total += seconds
    each = total / repeats
    turns = sum(len(t.turns) for g in groups for t in g.trajectories)
    held, prefixes = resident(), prefix_mib(parts)
    groups.clear()
    after = resident()
    print(
        f"{chunks:>6} {turns:>7} {1000 * each:>11.1f} {before:>8.0f} {held:>8.0f} {after:>8.0f} {prefixes:>9.1f}",
        flush=True,
    )
    return each


def main() -> None:
    """Print a table over document lengths."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chunks", type=int, nargs="+", default=[16, 256, 1024])
    parser.add_argument("--documents", type=int, default=8, help="documents read side by side")
    parser.add_argument("--repeats", type=int, default=48, help="repetitions of short documents, at most")
    parser.add_argument(
        "--rounds",
        type=int,
        default=2,
        help="all lengths take turns so often, the best counts: machines change their pace",
    )
    parser.add_argument("--most-chunks", type=int, default=768, help="sections of all repetitions, or one document's")
    args = parser.parse_args()
    disable_progress_bar()
    cfg = compose("needle", ["trainer.device=cpu", "agent.timeout_s=3600"])
    parts = build(cfg, cfg.actor_rollout_ref.actor.optim, 1)
    parts.sync(0)
    read(Collector(cfg, parts.roles()), documents(cfg, 8, args.documents))  # warm-up
    print(f"{args.documents} documents side by side; resident MiB before, with the trajectories, and without them")
    print(f"{'chunks':>6} {'turns':>7} {'ms/section':>11} {'before':>8} {'with':>8} {'without':>8} {'prefixes':>9}")
    found = dict.fromkeys(args.chunks, float("inf"))
    for _ in range(args.rounds):
        for chunks in args.chunks:
            found[chunks] = min(found[chunks], measure(cfg, parts, chunks, args))
    first = args.chunks[0]
    for chunks in args.chunks[1:]:
        ratio = found[chunks] / found[first]
        verdict = "ok" if ratio <= TARGET else "MISSED"
        print(f"a section at {chunks} chunks costs {ratio:.2f}× one at {first} (≤ {TARGET:g}× {verdict})")


if __name__ == "__main__":
    main()
