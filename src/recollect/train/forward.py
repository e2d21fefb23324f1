"""The model's log-probabilities of trained tokens, without keeping [tokens × vocabulary] in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from recollect.algos.packed import Packed, pack
from recollect.algos.tree import build_tree
from recollect.models.attention import using
from recollect.types import BadInput

CHUNK_LOGITS = 1 << 25  # logits computed at a time: 128 MiB of float32


def hidden_states(model: Any, packed: Packed) -> Tensor:
    """[nodes, width]: the body's output for every node of the trees."""
    with using(packed.plan):
        out = model.base_model(
            input_ids=packed.tokens.unsqueeze(0), position_ids=packed.positions.unsqueeze(0), use_cache=False
        )
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


@torch.no_grad()
def check_head(model: Any) -> None:
    """Refuse an architecture whose logits are more than its head over its hidden states (known: soft-capping)."""
    ids = np.arange(3, 11)
    packed = pack([build_tree([0], [ids])], [np.arange(8) > 0], [0]).to(next(model.parameters()).device)
    logprob, _ = logprobs_and_entropy(model.eval(), packed)
    with using(packed.plan):
        logits = model(packed.tokens[None], position_ids=packed.positions[None], use_cache=False).logits[0]
    expected = logits[:-1].float().log_softmax(-1).gather(-1, packed.targets[:, None])[:, 0]
    if not torch.allclose(logprob, expected, atol=1e-2):
        kind = model.config.model_type
        raise BadInput(f"{kind} models scale their logits in a way that recollect does not know; it cannot train them")


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
