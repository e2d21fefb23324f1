"""Weights and optimizer moments that wait in host memory while they are not used.

A parameter object stays what it is and only its data moves, so optimizers, tied weights and saved names are untouched.
Host memory is pinned where there is a GPU, so that copies run at the bus's speed. On a CPU there is nothing to move.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from recollect.training.learner.optimizers import Optimizers


def to_host(tensor: Tensor) -> Tensor:
    """A copy in host memory, pinned if that is to be had."""
    try:
        out = torch.empty_like(tensor, device="cpu", pin_memory=True)
    except RuntimeError:  # no more memory can be pinned
        out = torch.empty_like(tensor, device="cpu")
    return out.copy_(tensor, non_blocking=True)


def park(module: nn.Module) -> None:
    """Move a module's parameters, and gradients if it has any, to host memory."""
    moved = False
    for parameter in module.parameters():
        if parameter.device.type == "cuda":
            grad, parameter.grad = parameter.grad, None
            parameter.data = to_host(parameter.data)
            parameter.grad = None if grad is None else to_host(grad)
            moved = True
    if moved:
        torch.cuda.synchronize()


def wake(module: nn.Module, device: torch.device) -> None:
    """Move a module's parameters, and gradients if it has any, back to the device."""
    for parameter in module.parameters():
        if parameter.device != device:
            grad, parameter.grad = parameter.grad, None
            parameter.data = parameter.data.to(device, non_blocking=True)
            parameter.grad = None if grad is None else grad.to(device, non_blocking=True)


def park_optimizer(optimizer: Optimizers) -> None:
    """Move an optimizer's moments and masters to host memory; its counters, which are scalars, stay."""
    moved = False
    for state, key, value in _moments(optimizer):
        if value.device.type == "cuda":
            state[key] = to_host(value)
            moved = True
    if optimizer.masters is not None:
        optimizer.masters.park()
    if moved:
        torch.cuda.synchronize()


def wake_optimizer(optimizer: Optimizers, device: torch.device) -> None:
    """Move an optimizer's moments back to the device."""
    if optimizer.masters is not None:
        optimizer.masters.wake()
    for state, key, value in _moments(optimizer):
        state[key] = value.to(device, non_blocking=True)


def _moments(optimizer: Optimizers) -> Iterator[tuple[dict[str, Tensor], str, Tensor]]:
    for part in optimizer.parts:
        for state in part.state.values():
            for key, value in list(state.items()):
                if isinstance(value, Tensor) and value.ndim > 0:
                    yield state, key, value
