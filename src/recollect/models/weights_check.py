"""Check that a model is complete: its files hold every weight and nothing else, and all values are finite."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from recollect.types import BadInput


def check_complete(model: Any, found: Mapping[str, Any], path: str) -> None:
    """Refuse a model whose files lack weights, or hold others; ``found`` is what the library says about its loading."""
    for name, what in (
        ("missing_keys", "lacks weights of the model, which would be random"),
        ("unexpected_keys", "holds weights that the model does not have"),
        ("mismatched_keys", "holds weights of another shape than its config.json says"),
    ):
        if keys := sorted(map(_said, found.get(name) or ())):
            more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
            raise BadInput(f"{path} {what}: {keys[0]}{more}; load the folder that the model was saved to")
    check_finite(model.named_parameters(), path)


def _said(key: Any) -> str:
    """A weight by its name; one of another shape comes with both."""
    if isinstance(key, str):
        return key
    name, stored, wanted = key
    return f"{name} is {tuple(stored)} in the file and {tuple(wanted)} in the model"


@torch.no_grad()
def check_finite(weights: Iterable[tuple[str, torch.Tensor]], path: str) -> None:
    """Refuse weights that are not finite."""
    for name, weight in weights:
        if weight.is_floating_point() and not bool(torch.isfinite(weight).all()):
            raise BadInput(f"{path}: the weights {name} are not finite (NaN or infinity); the model is damaged")
