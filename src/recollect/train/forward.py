"""The model's log-probabilities of trained tokens, without keeping [tokens × vocabulary] in memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from recollect.algos.packed import Packed
from recollect.models.attention import using

CHUNK_LOGITS = 1 << 25  # logits computed at a time: 128 MiB of float32


def hidden_states(model: Any, packed: Packed) -> Tensor:
    """[nodes, width]: the body's output for every node of the trees."""
    body = model.get_base_model().base_model if hasattr(model, "peft_config") else model.base_model
    with using(packed.plan):
        out = body(input_ids=packed.tokens.unsqueeze(0), position_ids=packed.positions.unsqueeze(0), use_cache=False)
    return out.last_hidden_state[0]


def _token_statistics(
    head: nn.Module, hidden: Tensor, targets: Tensor, temperature: float, softcap: float | None
) -> tuple[Tensor, Tensor]:
    logits = head(hidden).float()
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    if temperature != 1.0:
        logits = logits / temperature
    log_z = logits.logsumexp(-1)
    logprob = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1) - log_z
    entropy = log_z - (torch.softmax(logits, -1) * logits).sum(-1)
    return logprob, entropy


def logprobs_and_entropy(
    model: Any, packed: Packed, temperature: float = 1.0, chunk: int | None = None
) -> tuple[Tensor, Tensor]:
    """[targets] log-probability of each target token and entropy of its distribution, in float32.

    The head runs over a few thousand targets at a time; with gradients each piece is recomputed in the backward pass.
    """
    hidden = hidden_states(model, packed)[packed.parents]
    head = model.get_output_embeddings()
    softcap = getattr(model.config, "final_logit_softcapping", None)
    rows = chunk or max(1, CHUNK_LOGITS // model.config.vocab_size)
    if len(hidden) <= rows:
        return _token_statistics(head, hidden, packed.targets, temperature, softcap)
    pieces = []
    for h, t in zip(hidden.split(rows), packed.targets.split(rows), strict=True):
        if torch.is_grad_enabled():
            pieces.append(checkpoint(_token_statistics, head, h, t, temperature, softcap, use_reentrant=False))
        else:
            pieces.append(_token_statistics(head, h, t, temperature, softcap))
    return torch.cat([p[0] for p in pieces]), torch.cat([p[1] for p in pieces])
