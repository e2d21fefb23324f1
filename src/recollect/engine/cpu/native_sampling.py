"""Sampling on CPUs: compiled where no row uses top-p or top-k."""

from __future__ import annotations

from torch import Tensor

from recollect.engine.sampling import sample
from recollect.models.native.blocks import able, sample_tokens


def native_sample(
    logits: Tensor,
    temperature: Tensor,
    top_p: Tensor,
    top_k: Tensor,
    uniforms: Tensor,
    plain: bool,
    some_greedy: bool = True,
) -> tuple[Tensor, Tensor]:
    """As `sampling.sample`, in one compiled pass where it can be."""
    if plain and able(logits):
        return sample_tokens(logits, temperature, uniforms)
    return sample(logits, temperature, top_p, top_k, uniforms, plain, some_greedy)
