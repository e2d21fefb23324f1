"""New weights for vLLM servers: seconds of a sync by files and by broadcast, and where they go.

    python benchmarks/weight_sync.py tiny --python ~/vllm/bin/python       # the Python that has vLLM
    python benchmarks/weight_sync.py DIR --servers 2 --dtype bfloat16      # a model folder

Servers are started once for each way. The first sync is not counted; the others are of weights that changed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

from recollect.config.compose import compose
from recollect.engine import load_fitted
from recollect.models.load import load_tokenizer
from recollect.models.lora import plain_weights
from recollect.models.starting_model import starting_model
from recollect.samplers.fleet.make_fleet import make_fleet

ROLLOUT = "actor_rollout_ref.rollout"


def measure(way: str, model: str, path: str, args: argparse.Namespace, folder: Path) -> str:
    """A line of the table."""
    given = [f"{ROLLOUT}.name=vllm", f"{ROLLOUT}.server_python={args.python}", f"{ROLLOUT}.num_servers={args.servers}"]
    more = [f"{ROLLOUT}.weight_sync={way}", f"{ROLLOUT}.dtype={args.dtype}", f"{ROLLOUT}.max_num_seqs=16"]
    place = [f"trainer.default_local_dir={folder}", "agent.max_context_length=512", "trainer.device=cpu"]
    cfg = compose(None, [*given, *more, *place, f"actor_rollout_ref.model.path={model}"])
    weights: Any = load_fitted(path, torch.float32, "cpu")
    fleet = make_fleet(cfg, path, load_tokenizer(path).decode, warn=print)
    took = []
    try:
        for version in range(args.times + 1):
            with torch.no_grad():
                for parameter in weights.parameters():
                    parameter.mul_(1.001)
            start = time.monotonic()
            fleet.take_weights(version, plain_weights(weights))
            took.append(time.monotonic() - start)
        size = fleet.statistics().sync_bytes
    finally:
        fleet.close()
    each = took[1:]
    spread = f"{min(each):.2f}–{max(each):.2f}"
    return (
        f"| {model} | {args.servers} | {way} | {size / 2**20:.1f} | {median(each):.2f} | {spread} "
        f"| {size / median(each) / 1e6:.0f} |"
    )


def main() -> None:
    """Both ways, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="tiny, or the folder of a model")
    parser.add_argument("--python", default=sys.executable, help="the Python that has vLLM")
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--times", type=int, default=9, help="syncs that are counted")
    parser.add_argument("--ways", nargs="+", default=["files", "broadcast"], choices=["files", "broadcast"])
    args = parser.parse_args()
    print("| model | servers | way | MiB | a sync, s (median) | least–most | MB/s |\n|---|---|---|---|---|---|---|")
    cfg = compose(None, [f"actor_rollout_ref.model.path={args.model}"])
    with tempfile.TemporaryDirectory(prefix="recollect-sync-") as folder, starting_model(cfg) as path:
        for way in args.ways:
            print(measure(way, args.model, path, args, Path(folder) / way), flush=True)


if __name__ == "__main__":
    main()
