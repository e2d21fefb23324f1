"""A digest that tells whether two models, or one model at two times, have the same weights."""

from __future__ import annotations

import hashlib
from typing import Any

import torch


def weights_digest(model: Any) -> str:
    """A digest of every weight, by name; the same for the same weights, whoever holds them."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name}:{tuple(tensor.shape)}:{tensor.dtype}".encode())
        digest.update(tensor.detach().to("cpu").contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
