"""`--device` of the benchmarks in this folder: a GPU, or the same kind of work for the embedded model on a CPU.

A benchmark that has a script of its own for the CPU hands over to it, in a fresh process, with all other arguments.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import torch

FOLDER = Path(__file__).resolve().parents[1]


def parse(parser: argparse.ArgumentParser, *twin: str) -> argparse.Namespace:
    """The arguments with `device`. For a CPU it never returns if there is a twin: its script, then arguments."""
    here = "cuda" if torch.cuda.is_available() else "cpu"
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for each in (first, parser):
        each.add_argument("--device", choices=["cuda", "cpu"], help="default: cuda if there is one")
    if twin:
        parser.epilog = f"--device cpu runs benchmarks/{' '.join(twin)}; --device cpu --help lists its options."
    asked, rest = first.parse_known_args()
    chosen = asked.device or here
    asks_for_help = asked.device is None and {"-h", "--help"} & set(rest)
    if chosen == "cpu" and twin and not asks_for_help:
        command = [str(FOLDER / twin[0]), *twin[1:], *rest]
        print(f"on the CPU: benchmarks/{' '.join([*twin, *rest])}", flush=True)
        os.execv(sys.executable, [sys.executable, *command])
    args = parser.parse_args()
    if chosen == "cuda" and here == "cpu":
        parser.error("there is no CUDA device here; --device cpu measures the embedded model")
    args.device = chosen
    return args
