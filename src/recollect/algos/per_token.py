"""Ids beside tokens, in either of the two shapes that the algorithms take: padded [rows, tokens] or flat [entries]."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor


def beside(given: Any, like: Tensor) -> Tensor:
    """What is given for each row, or for each token, as one element for each token of ``like``."""
    import torch

    given = torch.as_tensor(given, device=like.device)
    if given.shape == like.shape:
        return given
    if like.dim() == 2 and given.shape == like.shape[:1]:
        return given[:, None].expand_as(like)
    raise ValueError(f"shape {list(given.shape)} does not fit tokens of shape {list(like.shape)}")


def ids_beside(ids: Any, like: Tensor) -> Tensor:
    """The id of each token of ``like``. Ids are a tensor, or an array or list of anything that can be sorted."""
    import torch

    if not isinstance(ids, torch.Tensor):
        names = np.asarray(ids)
        ids = np.unique(names, return_inverse=True)[1].reshape(names.shape)
    return beside(ids, like)


def rows_of(like: Tensor, what: str) -> Tensor:
    """The row of each token; flat tokens have none, so that the caller must have said ``what`` they belong to."""
    import torch

    if like.dim() != 2:
        raise ValueError(f"flat tokens need {what}: one id for each token")
    return torch.arange(len(like), device=like.device)[:, None].expand_as(like)


def trained(mask: Any, like: Tensor) -> Tensor:
    """The mask as booleans."""
    import torch

    chosen = torch.as_tensor(mask, device=like.device).bool()
    if chosen.shape != like.shape:
        raise ValueError(f"the mask's shape {list(chosen.shape)} is not that of the tokens, {list(like.shape)}")
    return chosen
