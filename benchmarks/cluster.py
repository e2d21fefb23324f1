"""A GRPO step past one machine, on paper: where its time would go with 8 and 64 GPUs, for models of 7B and 32B.

    python benchmarks/cluster.py             # fitted to what `benchmarks/gpu` measured on one H200
    python benchmarks/cluster.py --measure   # and the same kind of model fitted to this machine, and checked on it

Sampling is simulated, with attempts of several turns and lengths that differ; the rest is counted. The work is that of
a memory agent: 128 tasks × 16 attempts, 4 sections of 5,000 tokens, turns of 400 tokens on average and 1,024 at most.
Nothing of it was run on more than one GPU. Figures of wires are data sheets' times 0.8, those of storage are options,
and servers are taken to be as fast as recollect's engine unless --slower says otherwise.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from scaling.h200 import DECODE, STEP, Pace, errors, fitted
from scaling.here import compare, storage
from scaling.model_shape import SHAPES
from scaling.sampling import Work
from scaling.step_model import Layout, Wires, best, step_parts

ROW = "{:<5} {:>4} {:>2} {:<9} {:<35} {:>7} {:>8} {:>6} {:>7} {:>6} {:>7}  {}"
HEAD = (
    *("model", "GPUs", "L", "weights", "layout"),
    *("step, s", "sampling", "sync", "compute", "comm.", "moving", "most of it"),
)


def show_fit(pace: Pace) -> None:
    """The fitted numbers, and how far they are from what was measured."""
    read = 1 / pace.byte / 1e12
    print(f"one H200: {pace.layer * 1e6:.1f} µs a layer of a decoding step, and {read:.2f} TB/s of what it reads")
    for point, error in zip(DECODE, errors(pace), strict=True):
        case = f"{point.model}, {point.rows} rows"
        print(f"  {case:<16} {point.seconds * 1e3:5.2f} ms measured, {point.seconds * error * 1e3:5.2f} by the fit")
    work = Work(tasks=8, samples=16, sections=4, section=5000, mean=256, limit=256, spread=0.0)
    parts = step_parts(work, SHAPES["1.5B"], pace, Wires(), Layout(1, 1, 1, apart=False, shares=True))
    assert parts is not None
    print(
        f"a step that nothing was fitted to (gpu/step.py, 1.5B): rollout {STEP[0]} s measured, {parts.sampling:.1f} "
        f"predicted; update {STEP[1]} and {parts.learning:.1f}; both {sum(STEP):.1f} and {parts.total:.1f}: "
        f"{100 * (parts.total / sum(STEP) - 1):+.0f} %"
    )


def show_here() -> None:
    """This machine: its storage, and steps with two ranks against the model fitted to smaller ones."""
    with tempfile.TemporaryDirectory() as folder:
        write, read = storage(Path(folder))
    print(
        f"weights here: {write / 1e9:.2f} GB/s written, with digest and sync, {read / 1e9:.2f} GB/s read and verified"
    )
    print("two ranks on this CPU, the embedded model, larger steps than those that the model was fitted to:")
    for check in compare():
        print(
            f"  {check.part:<8} {check.measured:6.2f} s measured, {check.predicted:6.2f} predicted: "
            f"{100 * (check.predicted / check.measured - 1):+.0f} %"
        )


def predict(pace: Pace, wires: Wires, models: list[str], gpus: list[int], slower: float) -> None:
    """A table: for every model and number of GPUs the best layout, in step and one batch ahead."""
    print(f"storage: {wires.write / 1e9:.2f} GB/s written, {wires.read / 1e9:.2f} GB/s read by each server;", end=" ")
    print(f"servers {slower:g} times as slow as the engine; L is trainer.max_staleness")
    print(ROW.format(*HEAD))
    for name in models:
        for count in gpus:
            for staleness in (0, 1):
                for broadcast in (False, True):
                    asked = {"broadcast": broadcast, "slower": slower}
                    found = best(Work(), SHAPES[name], pace, wires, count, staleness, asked)
                    how = (name, count, staleness, "broadcast" if broadcast else "files")
                    if found is None:
                        print(ROW.format(*how, "does not fit", *[""] * 7))
                        continue
                    layout, made = found
                    seconds = (made.total, made.sampling, made.sync, made.compute, made.communication, made.moving)
                    print(ROW.format(*how, layout.name, *(f"{s:.1f}" for s in seconds), made.bottleneck), flush=True)


def main() -> None:
    """The fit, the checks, the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["7B", "32B"], choices=list(SHAPES))
    parser.add_argument("--gpus", nargs="+", type=int, default=[8, 64])
    parser.add_argument(
        "--slower", type=float, default=1.0, help="how much slower servers are than the measured engine"
    )
    parser.add_argument("--write", type=float, default=1.0, help="GB/s that one writer gives to the storage")
    parser.add_argument("--read", type=float, default=2.0, help="GB/s that each server reads from it")
    parser.add_argument("--measure", action="store_true", help="also measure this machine (about two minutes)")
    args = parser.parse_args()
    pace = fitted()
    show_fit(pace)
    if args.measure:
        show_here()
    predict(pace, Wires(write=args.write * 1e9, read=args.read * 1e9), args.models, args.gpus, args.slower)


if __name__ == "__main__":
    main()
