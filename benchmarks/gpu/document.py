"""One very long document on one GPU: seconds per section against a short one, and memory.

python benchmarks/gpu/document.py
python benchmarks/gpu/document.py --device cpu
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from device import parse
from synthetic import make_folder, words

from recollect.agents.rollout import Collector
from recollect.agents.session import Binding
from recollect.chat import Renderer
from recollect.config.compose import compose
from recollect.engine import make_engine
from recollect.models.load import load_model, load_tokenizer
from recollect.types import Sampling, Task


@dataclass(frozen=True)
class Made:
    """A document that is made while it is read."""

    tokens: int
    number: int = 0

    def pieces(self) -> Iterator[str]:
        """So many tokens, a thousand at a time."""
        rng = np.random.default_rng((self.tokens, self.number))  # nothing of one document is known from another
        for _ in range(self.tokens // 1000):
            yield words(rng, 1000) + " "


def main() -> None:
    """Read documents of several lengths with one engine."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="0.5B")
    parser.add_argument("--lengths", type=int, nargs="+", default=[50_000, 3_500_000])
    parser.add_argument("--new", type=int, default=64, help="tokens of each memory")
    parser.add_argument("--least", type=int, default=500_000, help="tokens to read of each length, in documents")
    args = parse(parser, "long_document.py")
    with tempfile.TemporaryDirectory() as name:
        folder = make_folder(args.shape, Path(name))
        limits = {"chunk_size": 5000, "max_memorization_length": args.new, "max_final_response_length": args.new}
        settings = [f"recurrent.memory.config.{key}={value}" for key, value in limits.items()]
        kept = "actor_rollout_ref.rollout.prefix_cache_tokens=20000"  # a few sections; nothing comes again here
        cfg = compose("hotpotqa_memory", [*settings, kept, "agent.timeout_s=100000"])
        renderer = Renderer(load_tokenizer(str(folder)))
        model = load_model(str(folder), torch.bfloat16, "cuda")
    engine = make_engine(model, renderer.decode, cfg.actor_rollout_ref.rollout, own=True)
    collector = Collector(cfg, {"*": Binding(engine, renderer, trainable=False)})
    each: list[float] = []
    for length in (10_000, *args.lengths):  # the first one compiles
        torch.cuda.reset_peak_memory_stats()
        took, turns = 0.0, 0
        count = max(1, args.least // length) if each else 1  # a short one is over too soon to be timed alone
        for number in range(count):
            task = Task(f"{length}/{number}", "w1 w2 w3", Made(length, number), ("w4",))
            start = time.perf_counter()
            groups = asyncio.run(collector.collect([task], 1, Sampling(max_tokens=args.new), "read"))
            took += time.perf_counter() - start
            (attempt,) = groups[0].trajectories
            assert attempt.failure is None, attempt.failure
            turns += len(attempt.turns)
        each.append(took / turns)
        print(
            f"{length:>9} tokens, {turns} turns: {took:.1f} s, {each[-1] * 1e3:.1f} ms a turn; peak GPU "
            f"{torch.cuda.max_memory_allocated() / 2**20:.0f} MiB, resident "
            f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB",
            flush=True,
        )
    ratio = each[-1] / each[1]
    print(f"{torch.cuda.get_device_name()}, {args.shape}: a turn of the longest takes {ratio:.2f}× one of the first")


if __name__ == "__main__":
    main()
