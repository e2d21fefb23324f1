"""Two models over one set of weights: learner and engine share memory, and nothing is copied."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor, nn

from recollect.models.attention import unfocus


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor that may be spread over ranks, which then all have to ask for it."""
    found: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return found


def twin(model: Any) -> Any:
    """Another model with modules of its own, whose parameters see the same memory and are not trained."""
    made = copy.deepcopy(model, {id(p): nn.Parameter(p.data, requires_grad=False) for p in model.parameters()})
    unfocus(made)
    return made


def see_same(model: nn.Module, source: nn.Module) -> None:
    """Have a model's parameters see the memory of its twin's."""
    for mine, theirs in zip(model.parameters(), source.parameters(), strict=True):
        mine.data = theirs.data


def is_shared(model: nn.Module, other: nn.Module) -> bool:
    """True when two models are one, or see the same memory."""
    pairs = zip(model.parameters(), other.parameters(), strict=False)
    return all(mine.data_ptr() == theirs.data_ptr() for mine, theirs in pairs)
