"""From logits to sampled ids, for all rows at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from recollect.engine.masks import Allowed, allowed_ids
from recollect.engine.noise import uniform
from recollect.engine.row_state import RowState

FEW = 8192  # ids of a vocabulary that is summed up in one go
BLOCK = 256  # ids of a larger one that are summed up together


class Sampled(NamedTuple):
    """One new token for every row, in the order of the rows, or for some of them."""

    ids: np.ndarray  # [rows] int64
    logprobs: np.ndarray  # [rows] float32
    stopped: np.ndarray  # [rows] whether it is one of the row's stop ids
    full: np.ndarray  # [rows] whether the row is at its limit with it
    rows: np.ndarray | None = None  # which rows, in rising order; None: all


TokenSampler = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, bool, bool], tuple[Tensor, Tensor]]  # as `sample`


def sample_rows(logits: Tensor, state: RowState, sampler: TokenSampler) -> Sampled:
    """Sample one token for every row from [rows, vocabulary] logits, each with its own settings and noise."""
    rows = slice(len(state.requests))
    there = lambda array: torch.from_numpy(np.ascontiguousarray(array[rows])).to(logits.device, non_blocking=True)
    settings = (
        there(state.temperature),
        there(state.top_p),
        there(state.top_k),
        uniform(there(state.noise), there(state.count)),
        bool((state.top_p[rows] >= 1).all() and (state.top_k[rows] <= 0).all()),
        bool((state.temperature[rows] <= 0).any()),
    )
    words = allowed_ids(state, logits.shape[-1])
    if words is None:
        ids, logprobs = sampler(logits, *settings)
    else:
        allowed = Allowed(torch.from_numpy(words).to(logits.device), there(state.has_grammar))
        ids, logprobs = sample_allowed(sampler, logits, allowed, *settings)
    chosen = ids.cpu().numpy()
    return Sampled(chosen, logprobs.float().cpu().numpy(), *state.ended_by(chosen))


def sample(
    logits: Tensor,
    temperature: Tensor,
    top_p: Tensor,
    top_k: Tensor,
    uniforms: Tensor,
    plain: bool,
    some_greedy: bool = True,
) -> tuple[Tensor, Tensor]:
    """[rows] ids and their log-probabilities at the sampling temperature (temperature 0: greedy, reported at 1).

    Sampling inverts the cumulative distribution at one uniform number per row. ``plain`` promises that no row uses
    top-p or top-k, which saves the sort; without ``some_greedy`` no row has temperature 0.
    """
    greedy = temperature <= 0
    scaled = logits.float() / torch.where(greedy, 1.0, temperature).unsqueeze(-1)
    logprobs = torch.log_softmax(scaled, -1)
    if plain and logits.shape[-1] > FEW:
        sampled = _invert_blocks(logprobs.exp(), uniforms)
    else:
        probs = logprobs.double().exp()
        if not plain:
            probs = _truncate(probs, top_p, top_k)
        sampled = _invert(probs, uniforms)
    ids = torch.where(greedy, logits.argmax(-1), sampled) if some_greedy else sampled
    return ids, logprobs.gather(-1, ids.unsqueeze(-1)).squeeze(-1)


def sample_allowed(
    sampler: TokenSampler, logits: Tensor, allowed: Allowed, temperature: Tensor, *settings: Any
) -> tuple[Tensor, Tensor]:
    """As a sampler, from the ids that are allowed; log-probabilities are those among all ids, as with top-p."""
    may_come = allowed.mask(logits.shape[-1])
    masked = logits.masked_fill(~may_come, float("-inf"))
    ids, logprobs = sampler(masked, temperature, *settings)
    there = may_come.gather(-1, ids.unsqueeze(-1)).squeeze(-1)  # rounding at a block's end could leave it
    ids = torch.where(there, ids, masked.argmax(-1))
    scaled = logits.float() / torch.where(temperature <= 0, 1.0, temperature).unsqueeze(-1)
    whole = torch.log_softmax(scaled, -1).gather(-1, ids.unsqueeze(-1)).squeeze(-1)
    return ids, torch.where(allowed.rows, whole, logprobs)


def _invert(probs: Tensor, uniforms: Tensor) -> Tensor:
    """[rows] where the cumulative distribution passes a number between 0 and 1."""
    total = probs.cumsum(-1)
    place = (total < (uniforms * total[:, -1]).unsqueeze(-1)).sum(-1)
    return place.clamp(max=probs.shape[-1] - 1)


def _invert_blocks(probs: Tensor, uniforms: Tensor) -> Tensor:
    """The same for a large vocabulary: first the block of ids, then the id within it."""
    rows, count = probs.shape
    blocks = -(-count // BLOCK)
    parts = torch.nn.functional.pad(probs, (0, blocks * BLOCK - count)).view(rows, blocks, BLOCK)
    ends = parts.sum(-1, dtype=torch.float64).cumsum(-1)
    goal = (uniforms * ends[:, -1]).unsqueeze(-1)
    block = (ends < goal).sum(-1, keepdim=True).clamp(max=blocks - 1)
    start = torch.where(block > 0, ends.gather(-1, (block - 1).clamp(min=0)), 0.0)
    inside = parts.gather(1, block.unsqueeze(-1).expand(-1, 1, BLOCK)).squeeze(1).double().cumsum(-1)
    place = (start + inside < goal).sum(-1).clamp(max=BLOCK - 1)
    return (block.squeeze(-1) * BLOCK + place).clamp(max=count - 1)


def _truncate(probs: Tensor, top_p: Tensor, top_k: Tensor) -> Tensor:
    """Zero what top-k and then top-p leave out."""
    ordered, index = probs.sort(-1, descending=True)
    rank = torch.arange(probs.shape[-1], device=probs.device)
    size = torch.where(top_k > 0, top_k, probs.shape[-1]).unsqueeze(-1)
    kept = torch.where(rank < size, ordered, 0.0)
    before = kept.cumsum(-1) - kept
    kept = torch.where(before < top_p.unsqueeze(-1) * kept.sum(-1, keepdim=True), kept, 0.0)
    return torch.zeros_like(probs).scatter(-1, index, kept)
