"""From logits to sampled ids, for all rows at once."""

from __future__ import annotations

import torch
from torch import Tensor


def sample(
    logits: Tensor, temperature: Tensor, top_p: Tensor, top_k: Tensor, uniforms: Tensor, plain: bool
) -> tuple[Tensor, Tensor]:
    """[rows] ids and their log-probabilities at the sampling temperature (temperature 0: greedy, reported at 1).

    Sampling inverts the cumulative distribution at one uniform number per row. ``plain`` promises that no row uses
    top-p or top-k, which saves the sort.
    """
    greedy = temperature <= 0
    scaled = logits.float() / torch.where(greedy, 1.0, temperature).unsqueeze(-1)
    logprobs = torch.log_softmax(scaled, -1)
    probs = logprobs.double().exp()
    if not plain:
        probs = _truncate(probs, top_p, top_k)
    total = probs.cumsum(-1)
    drawn = (total < (uniforms * total[:, -1]).unsqueeze(-1)).sum(-1).clamp(max=logits.shape[-1] - 1)
    ids = torch.where(greedy, logits.argmax(-1), drawn) if bool(greedy.any()) else drawn
    return ids, logprobs.gather(-1, ids.unsqueeze(-1)).squeeze(-1)


def _truncate(probs: Tensor, top_p: Tensor, top_k: Tensor) -> Tensor:
    """Zero what top-k and then top-p leave out."""
    ordered, index = probs.sort(-1, descending=True)
    rank = torch.arange(probs.shape[-1], device=probs.device)
    size = torch.where(top_k > 0, top_k, probs.shape[-1]).unsqueeze(-1)
    kept = torch.where(rank < size, ordered, 0.0)
    before = kept.cumsum(-1) - kept
    kept = torch.where(before < top_p.unsqueeze(-1) * kept.sum(-1, keepdim=True), kept, 0.0)
    return torch.zeros_like(probs).scatter(-1, index, kept)
