"""Weights that are spread over ranks: put together to be written, handed over or read, and taken from files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from recollect.models.lora import ADAPTER, PREFIX, WEIGHTS, is_adapted, plain_weights
from recollect.models.shared_weights import whole
from recollect.models.weights_check import check_finite


@torch.no_grad()
def gathered(named: Iterable[tuple[str, Tensor]], keep: bool) -> dict[str, Tensor]:
    """Tensors put together in host memory; ``keep`` False takes part and keeps nothing."""
    out: dict[str, Tensor] = {}
    for name, tensor in named:
        full = whole(tensor.detach())
        if keep:
            out[name] = full.cpu()
    return out


def plain_stream(model: Any) -> Iterator[tuple[str, Tensor]]:
    """The plain model's weights, adapters merged, put together one at a time."""
    for name, weight in plain_weights(model):
        with torch.no_grad():
            yield name, whole(weight.detach())


def mine_of(parameter: Tensor, full: Any) -> Tensor:
    """This rank's part of a whole tensor, or of a slice of a file that can be read in parts."""
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    if not isinstance(parameter, DTensor):
        return torch.as_tensor(full[...])
    shape, offset = compute_local_shape_and_global_offset(parameter.shape, parameter.device_mesh, parameter.placements)
    if not parameter.ndim:
        return torch.as_tensor(full[...])
    found: Tensor = full[tuple(slice(start, start + size) for start, size in zip(offset, shape, strict=True))]
    return found


def local(parameter: Tensor) -> Tensor:
    """The memory of this rank's part."""
    found: Tensor = parameter.to_local() if hasattr(parameter, "to_local") else parameter
    return found


@torch.no_grad()
def read_sharded(folder: Path, model: Any) -> None:
    """Put stored weights, whole or of an adapter, into a model that is spread over ranks; each reads its part alone."""
    from safetensors import safe_open

    adapted = is_adapted(model)
    files = [folder / WEIGHTS] if adapted else sorted(folder.glob("model*.safetensors"))
    mine = {_stored_name(name, adapted): p for name, p in model.named_parameters() if not adapted or ".lora_" in name}
    known = set(mine) if adapted else set(model.state_dict())
    missing = set(mine)
    for path in files:
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118 (it is no dict)
                if name not in known:
                    raise ValueError(f"its weights are those of another model ({name})")
                if name not in mine:
                    continue  # another name of tied weights
                if list(file.get_slice(name).get_shape()) != list(mine[name].shape):
                    raise ValueError(f"its weights are of another shape ({name})")
                part = mine_of(mine[name], file.get_slice(name))
                check_finite([(name, part)], str(folder))
                local(mine[name]).copy_(part)
                missing.discard(name)
    if missing:
        raise ValueError(f"its weights are those of another model ({min(missing)})")


def _stored_name(name: str, adapted: bool) -> str:
    return PREFIX + name.replace(f".{ADAPTER}", "") if adapted else name


def copy_parts(model: nn.Module, other: nn.Module) -> None:
    """Give a model that is spread in the same way the same weights."""
    with torch.no_grad():
        for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
            local(mine).copy_(local(theirs))
