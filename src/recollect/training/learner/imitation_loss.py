"""The loss of imitation: how unlikely each trained token is, and whether it would have been the first choice."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from recollect.models.text_config import text_config
from recollect.packing.micro_batch import Packed
from recollect.training.learner.forward import Prediction, predict


def token_losses(model: Any, packed: Packed, chunk: int | None = None) -> tuple[Tensor, Tensor]:
    """[targets] −log p of each target in float32, and whether it has the largest probability.

    As in `statistics` of training/learner/forward.py the head runs over a few thousand targets at a time, but
    nothing is computed that imitation does not need.
    """
    policy = predict(model, packed)
    rows = chunk or policy.at_once(text_config(model).vocab_size)
    if len(policy.hidden) <= rows:
        return _piece(policy, policy.hidden, packed.targets)
    pieces = []
    for hidden, targets in zip(policy.hidden.split(rows), packed.targets.split(rows), strict=True):
        if torch.is_grad_enabled():
            pieces.append(checkpoint(_piece, policy, hidden, targets, use_reentrant=False))
        else:
            pieces.append(_piece(policy, hidden, targets))
    return torch.cat([p[0] for p in pieces]), torch.cat([p[1] for p in pieces])


def _piece(policy: Prediction, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    logits = policy.logits(hidden, 1.0)
    with torch.autocast(hidden.device.type, enabled=False):
        loss = F.cross_entropy(logits, targets, reduction="none")
    with torch.no_grad():
        right = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1) >= logits.amax(-1)
    return loss, right
