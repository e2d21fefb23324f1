"""Small random GGUF files of Llama models, with a byte-level tokenizer and a chat template of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
from tokenizers import pre_tokenizers

WIDTH, INNER, HEADS, KV_HEADS, LAYERS = 64, 96, 4, 2, 2
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = ("h e", "l l", "he ll", "hell o", "Ġ Ġ")
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
KINDS = gguf.GGMLQuantizationType


def words() -> list[str]:
    return [*SPECIALS, *sorted(pre_tokenizers.ByteLevel.alphabet()), *(m.replace(" ", "") for m in MERGES)]


def weights(seed: int = 0) -> dict[str, np.ndarray]:
    """The tensors of the model under GGUF's names, in float32."""
    rng, dim = np.random.default_rng(seed), WIDTH // HEADS
    draw = lambda *shape: (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)
    found = {"token_embd.weight": draw(len(words()), WIDTH), "output_norm.weight": np.ones(WIDTH, np.float32)}
    for i in range(LAYERS):
        found |= {
            f"blk.{i}.attn_norm.weight": np.ones(WIDTH, np.float32),
            f"blk.{i}.ffn_norm.weight": np.ones(WIDTH, np.float32),
            f"blk.{i}.attn_q.weight": draw(HEADS * dim, WIDTH),
            f"blk.{i}.attn_k.weight": draw(KV_HEADS * dim, WIDTH),
            f"blk.{i}.attn_v.weight": draw(KV_HEADS * dim, WIDTH),
            f"blk.{i}.attn_output.weight": draw(WIDTH, HEADS * dim),
            f"blk.{i}.ffn_gate.weight": draw(INNER, WIDTH),
            f"blk.{i}.ffn_up.weight": draw(INNER, WIDTH),
            f"blk.{i}.ffn_down.weight": draw(WIDTH, INNER),
        }
    return found


def write_gguf(
    path: Path,
    kind: KINDS = KINDS.F32,
    architecture: str = "llama",
    leave_out: str = "",
    tokenizer: bool = True,
    pre: str = "smollm",
    eos: int = 2,
    **claims: Any,
) -> Path:
    """Write a file whose matrices are of one type; ``claims`` replace numbers of its metadata, such as block_count."""
    out = gguf.GGUFWriter(str(path), architecture)
    numbers = {
        "context_length": 256,
        "block_count": LAYERS,
        "embedding_length": WIDTH,
        "feed_forward_length": INNER,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "rope.dimension_count": WIDTH // HEADS,
        "vocab_size": len(words()),
    } | claims
    for key, value in numbers.items():
        out.add_uint32(f"{architecture}.{key}", value)
    out.add_float32(f"{architecture}.attention.layer_norm_rms_epsilon", 1e-5)
    out.add_float32(f"{architecture}.rope.freq_base", 10000.0)
    out.add_string("general.license", "apache-2.0")
    if tokenizer:
        out.add_tokenizer_model("gpt2")
        out.add_tokenizer_pre(pre)
        out.add_token_list(words())
        out.add_token_types([3] * len(SPECIALS) + [1] * (len(words()) - len(SPECIALS)))
        out.add_token_merges(list(MERGES))
        out.add_bos_token_id(1)
        out.add_eos_token_id(eos)
        out.add_chat_template(TEMPLATE)
    for name, values in weights().items():
        if name == leave_out:
            continue
        if values.ndim == 1 or kind == KINDS.F32:
            out.add_tensor(name, values)
        elif kind == KINDS.F16:
            out.add_tensor(name, values.astype(np.float16))
        else:
            out.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return path
