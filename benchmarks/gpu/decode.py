"""Decoding on one GPU: milliseconds of a step, and how much of the roofline that is.

    python benchmarks/gpu/decode.py
    python benchmarks/gpu/decode.py --device cpu
    python benchmarks/gpu/decode.py --cases 1.5B:8x16:5000:256

A case is shape:prompts[xsamples]:context[:new tokens]. The roofline is the time to read the weights once and every
distinct key and value once, at the copy bandwidth that this run measures. The step is what the engine does, sampling
and bookkeeping included.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any

import numpy as np
import torch
from device import parse
from shapes import build, copy_bandwidth

from recollect.config import Rollout
from recollect.engine import make_engine
from recollect.types import Sampling

CASES = ["0.5B:64:1024", "0.5B:256:1024", "7B:64:1024", "1.5B:8x16:5000:256"]


def measure(case: str, bandwidth: float, eager: bool) -> None:
    """Print one case."""
    name, batch, context, new = (*case.split(":"), "128")[:4]
    prompts, samples = (int(n) for n in (f"{batch}x1".split("x"))[:2])
    rows, length, tokens = prompts * samples, int(context), int(new)
    model = build(name).eval()
    cfg = Rollout(max_num_seqs=rows, max_num_batched_tokens=16384, enforce_eager=eager)
    engine = make_engine(model, lambda ids: "", cfg, own=True)
    rng = np.random.default_rng(0)
    texts = [rng.integers(0, 1000, length).tolist() for _ in range(prompts)]

    async def everything() -> list[Any]:
        keys = [(i, j) for i in range(prompts) for j in range(samples)]
        asked = [engine.generate(texts[i], Sampling(max_tokens=tokens, key=f"{i}/{j}")) for i, j in keys]  # noqa: F821
        return await asyncio.gather(*asked)

    start = time.perf_counter()
    asyncio.run(everything())
    first = time.perf_counter() - start
    engine.new_weights(1)
    stamps: list[float] = []
    step = engine.step

    def stamped() -> None:
        stamps.append(time.perf_counter())
        step()

    engine.step = stamped  # type: ignore[method-assign]
    start = time.perf_counter()
    asyncio.run(everything())
    torch.cuda.synchronize()
    whole = time.perf_counter() - start
    took = float(np.median(np.diff(stamps)[-tokens // 2 : -4]))
    config = model.config
    dim = config.hidden_size // config.num_attention_heads
    each = 2 * config.num_hidden_layers * config.num_key_value_heads * dim * 2
    distinct = prompts * length + rows * tokens * 0.75
    weights = 2 * sum(p.numel() for p in model.parameters())
    roofline = (weights + each * distinct) / bandwidth
    print(
        f"{case:<22} {took * 1e3:6.2f} ms a step, roofline {roofline * 1e3:5.2f} ms: {100 * roofline / took:3.0f} %; "
        f"{rows * tokens / whole:7.0f} tokens/s with reading; first time {first:.0f} s",
        flush=True,
    )
    del engine, model
    torch._dynamo.reset()
    torch.cuda.empty_cache()


def generate(case: str) -> None:
    """Print what a plain transformers model does with the same prompts."""
    name, batch, context, new = (*case.split(":"), "128")[:4]
    prompts, samples = (int(n) for n in (f"{batch}x1".split("x"))[:2])
    model = build(name, "sdpa").eval()
    texts = np.random.default_rng(0).integers(0, 1000, (prompts, int(context)))
    ids = torch.tensor(np.repeat(texts, samples, 0)).cuda()
    for tokens in (8, int(new)):  # the first is to warm up
        limits = {"max_new_tokens": tokens, "min_new_tokens": tokens, "do_sample": True, "top_k": 0, "top_p": 1.0}
        torch.cuda.synchronize()
        start = time.perf_counter()
        with torch.inference_mode():
            model.generate(ids, attention_mask=torch.ones_like(ids), pad_token_id=0, **limits)
        torch.cuda.synchronize()
        took = time.perf_counter() - start
    print(f"{case:<22} transformers generate: {len(ids) * int(new) / took:7.0f} tokens/s with reading", flush=True)
    del model
    torch.cuda.empty_cache()


def main() -> None:
    """All cases, against one measurement of the bandwidth."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", default=CASES)
    parser.add_argument("--eager", action="store_true", help="without CUDA graphs and compiled layers")
    parser.add_argument("--generate", action="store_true", help="the same by transformers' generate")
    args = parse(parser, "engine.py", "--models", "tiny", "--repeats", "2")
    bandwidth = copy_bandwidth()
    print(f"{torch.cuda.get_device_name()}, copy bandwidth {bandwidth / 1e12:.2f} TB/s", flush=True)
    for case in args.cases:
        measure(case, bandwidth, args.eager)
        if args.generate:
            generate(case)


if __name__ == "__main__":
    main()
