"""Randomly initialised models of Qwen2.5's shapes, and the hardware's limits measured in the same run."""

from __future__ import annotations

import time
from typing import Any

import torch

SIZES = {  # width, layers, heads, key heads, MLP width, tied embeddings
    "0.5B": (896, 24, 14, 2, 4864, True),
    "1.5B": (1536, 28, 12, 2, 8960, True),
    "7B": (3584, 28, 28, 4, 18944, False),
}


def build(name: str, attention: str | None = None, dtype: torch.dtype = torch.bfloat16) -> Any:
    """A model of a shape on the GPU, with recollect's attention or another."""
    from transformers import AutoModelForCausalLM, Qwen2Config

    from recollect.models.attention import register

    width, layers, heads, kv, mlp, tied = SIZES[name]
    config = Qwen2Config(
        vocab_size=151936,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv,
        intermediate_size=mlp,
        max_position_embeddings=32768,
        tie_word_embeddings=tied,
    )
    torch.manual_seed(0)
    with torch.device("cuda"):
        return AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=attention or register())


def seconds(work: Any, repeats: int, warm: int = 2) -> float:
    """Seconds of one repetition."""
    for _ in range(warm):
        work()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / repeats


def copy_bandwidth() -> float:
    """Bytes per second that a large copy reads and writes."""
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.numel() / seconds(lambda: target.copy_(source), 20)


def matmul_peak() -> float:
    """Operations per second of a large bfloat16 product."""
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    return 2 * 8192**3 / seconds(lambda: a @ a, 20)
