"""The in-process engine against `transformers.generate`, on the same models, prompts and number of new tokens.

A small model's time goes to overheads: Python between steps, key-value caches that are copied as they grow, attention
over prompts that many samples share. The engine exists to remove them, and this says by how much. Two workloads of 64
completions: 64 distinct prompts, and 8 prompts with 8 samples each, as a GRPO step asks for. Every repetition has fresh
prompts and empty caches. Both sides use the same dtype, plain sampling at temperature 1 (no top-k, no top-p) and their
own best number of threads; the baseline also its best batch size. With --vllm URL the baseline is a vLLM server on this
machine that serves the embedded model (`recollect model tiny -o FOLDER` writes it).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers.utils.logging import disable_progress_bar

from recollect.engine import Engine
from recollect.models.attention import register
from recollect.models.load import EMBEDDED, load_model, load_tokenizer, model_path
from recollect.types import Sampling

ROWS = 64
CALM_S = 10  # a vLLM server that has nothing to do keeps its cores busy for some seconds more
Prompts = list[list[int]]
Generate = Callable[[Prompts], int]  # makes completions for prompts and returns how many tokens that were
Setting = tuple[int, Generate]  # threads, and how to generate
WORKLOADS = (("64 distinct", 64, 2.0), ("8 × 8 samples", 8, 5.0))  # name, distinct prompts among the rows, target


@dataclass(frozen=True)
class Work:
    """One workload."""

    name: str
    distinct: int  # how many different prompts the 64 rows have
    prompt_tokens: int
    new_tokens: int
    vocabulary: int
    salt: int = 0  # other prompts: a server may still know those of the last time

    def prompts(self, seed: int) -> Prompts:
        """Random prompts, each repeated for all of its samples."""
        rng = np.random.default_rng((self.salt, self.distinct, seed))  # workloads share no prompt
        rows = rng.integers(10, self.vocabulary, (self.distinct, self.prompt_tokens))
        return [row.tolist() for row in rows for _ in range(ROWS // self.distinct)]


def llama(attention: str, dtype: torch.dtype) -> Any:
    """A random model of 3.4M parameters in the shape of Llama."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=2048,
        hidden_size=256,
        intermediate_size=688,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        attn_implementation=attention,
    )
    torch.manual_seed(0)
    return LlamaForCausalLM(config).to(dtype).eval()


def models(name: str, dtype: torch.dtype) -> tuple[Any, Any, Callable[[Any], str]]:
    """The same model for the baseline and for the engine, and what decodes its ids."""
    if name == "llama":
        return llama("sdpa", dtype), llama(register(), dtype), lambda ids: ""
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_pretrained(model_path(EMBEDDED), dtype=dtype, attn_implementation="sdpa").eval()
    return theirs, load_model(EMBEDDED, dtype), load_tokenizer(EMBEDDED).decode


def baseline(model: Any, new_tokens: int, batch: int) -> Generate:
    """`model.generate` over batches of so many rows."""
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0

    @torch.inference_mode()
    def generate(prompts: Prompts) -> int:
        made = 0
        for start in range(0, len(prompts), batch):
            ids = torch.tensor(prompts[start : start + batch])
            out = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                temperature=1.0,
                top_k=0,
                top_p=1.0,
                max_new_tokens=new_tokens,
            )
            made += out.numel() - ids.numel()
        return made

    return generate


def ours(engine: Engine, new_tokens: int) -> Generate:
    """All requests at once through the engine."""

    async def gather(prompts: Prompts) -> int:
        sampling = [Sampling(max_tokens=new_tokens, key=str(i)) for i in range(len(prompts))]
        done = await asyncio.gather(*(engine.generate(p, s) for p, s in zip(prompts, sampling, strict=True)))
        return sum(len(c.ids) for c in done)

    def generate(prompts: Prompts) -> int:
        engine.new_weights(0)  # the same prompts may have been read with another number of threads
        return asyncio.run(gather(prompts))

    return generate


def rate(generate: Generate, work: Work, seed: int) -> float:
    """Tokens per second of one repetition."""
    prompts = work.prompts(seed)
    start = time.perf_counter()
    made = generate(prompts)
    seconds = time.perf_counter() - start
    assert made == ROWS * work.new_tokens, f"{made} tokens were made"
    return made / seconds


def best(choices: dict[str, Setting], work: Work, repeats: int) -> dict[str, float]:
    """The best rate of every setting. Settings take turns, so that other load on the machine meets all of them."""
    rates = dict.fromkeys(choices, 0.0)
    for repetition in range(repeats + 1):
        for label, (threads, generate) in choices.items():
            torch.set_num_threads(threads)
            if repetition == 0:
                generate(work.prompts(0)[:: ROWS // 8])  # warm-up
            else:
                rates[label] = max(rates[label], rate(generate, work, repetition))
    return rates


def threads_of(args: argparse.Namespace) -> list[int]:
    """The numbers of threads to try."""
    return [args.threads] if args.threads else sorted({1, min(2, torch.get_num_threads())})


def compare(name: str, dtype: torch.dtype, args: argparse.Namespace) -> None:
    """Print the rows of one model in one dtype."""
    theirs, mine, decode = models(name, dtype)
    engine = Engine(mine, decode)
    threads = threads_of(args)
    for label, distinct, target in WORKLOADS:
        work = Work(label, distinct, args.prompt_tokens, args.new_tokens, mine.config.vocab_size)
        base = {f"{t} thr, batch {b}": (t, baseline(theirs, args.new_tokens, b)) for t in threads for b in args.batches}
        own = {f"{t} thr": (t, ours(engine, args.new_tokens)) for t in threads}
        rates = best(base | own, work, args.repeats)
        slow, fast = max(base, key=lambda k: rates[k]), max(own, key=lambda k: rates[k])
        ratio = rates[fast] / rates[slow]
        print(
            f"{name:<6} {str(dtype)[6:]:<9} {label:<14} {rates[slow]:>9.0f} {f'({slow})':<18} {rates[fast]:>9.0f} "
            f"{f'({fast})':<8} {ratio:>6.2f}× (≥ {target:g}× {'ok' if ratio >= target else 'MISSED'})",
            flush=True,
        )
        if args.all:
            print("       " + "  ".join(f"{k}: {v:.0f}" for k, v in rates.items()), flush=True)


def ask(url: str, body: dict[str, Any] | None = None) -> Any:
    """One JSON request to a server."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as reply:
        return json.load(reply)


def server(url: str, new_tokens: int, pool: ThreadPoolExecutor) -> Generate:
    """All requests at once to an OpenAI-compatible server."""
    base = url.rstrip("/").removesuffix("/v1") + "/v1"
    model = ask(f"{base}/models")["data"][0]["id"]

    def one(prompt: list[int]) -> int:
        body = {"model": model, "prompt": prompt, "max_tokens": new_tokens, "temperature": 1.0, "ignore_eos": True}
        return int(ask(f"{base}/completions", body)["usage"]["completion_tokens"])

    return lambda prompts: sum(pool.map(one, prompts))


def against_server(args: argparse.Namespace) -> None:
    """Print the server's rates, then the engine's."""
    engines = {name: Engine(load_model(EMBEDDED, getattr(torch, name)), lambda ids: "") for name in args.dtypes}
    size = args.prompt_tokens, args.new_tokens, next(iter(engines.values())).model.config.vocab_size
    works = [Work(label, distinct, *size, time.time_ns()) for label, distinct, _ in WORKLOADS]
    own = {f"{n}, {t} thr": (t, ours(e, args.new_tokens)) for n, e in engines.items() for t in threads_of(args)}
    with ThreadPoolExecutor(ROWS) as pool:
        asked = (1, server(args.vllm, args.new_tokens, pool))
        theirs = [best({"vLLM": asked}, work, args.repeats)["vLLM"] for work in works]
    time.sleep(CALM_S)
    for work, slow in zip(works, theirs, strict=True):
        print(f"{work.name:<14} {'vLLM':<16} {slow:>9.0f}")
        for name, fast in best(own, work, args.repeats).items():
            print(f"{work.name:<14} {name:<16} {fast:>9.0f} {fast / slow:>6.2f}×", flush=True)


def main() -> None:
    """Print a table of tokens per second and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["tiny", "llama"], choices=["tiny", "llama"])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"], choices=["float32", "bfloat16"])
    parser.add_argument("--prompt-tokens", type=int, default=256)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--batches", type=int, nargs="+", default=[64], help="batch sizes the baseline may pick")
    parser.add_argument("--threads", type=int, default=0, help="0: the better of one and two, for each side")
    parser.add_argument("--repeats", type=int, default=3, help="repetitions; the best counts")
    parser.add_argument("--all", action="store_true", help="also print the rate of every setting")
    parser.add_argument("--vllm", metavar="URL", help="against a vLLM server that serves the embedded model")
    args = parser.parse_args()
    disable_progress_bar()
    print(f"{args.prompt_tokens} prompt tokens, {args.new_tokens} new tokens, {ROWS} completions; tokens/s")
    if args.vllm:
        against_server(args)
        return
    print(f"{'model':<6} {'dtype':<9} {'workload':<14} {'generate':>9} {'':<18} {'engine':>9} {'':<8} {'ratio':>6}")
    for name in args.models:
        for dtype in args.dtypes:
            compare(name, getattr(torch, dtype), args)


if __name__ == "__main__":
    main()
