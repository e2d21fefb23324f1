"""Optimizers and learning-rate schedules by name."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from recollect.config import Optim
from recollect.types import BadInput

if TYPE_CHECKING:
    from recollect.training.learner.master_weights import Masters


class Optimizers:
    """One or two torch optimizers that step together, over a model's parameters or the masters behind them."""

    def __init__(
        self,
        parts: list[torch.optim.Optimizer],
        masters: Masters | None = None,
        named: Iterable[tuple[str, nn.Parameter]] = (),
    ) -> None:
        self.parts, self.masters = parts, masters
        self.names = {id(parameter): name for name, parameter in named}

    def moved(self) -> list[nn.Parameter]:
        """What the optimizers move."""
        return [p for part in self.parts for group in part.param_groups for p in group["params"]]

    def gradients(self) -> list[nn.Parameter]:
        """The same, with their gradients."""
        if self.masters is not None:
            self.masters.hand_over()
        return self.moved()

    def owed(self) -> int:
        """Bytes that an update will take: gradients that are not there yet, and before the first one the moments."""
        moved = self.moved()
        there = sum(p.numel() for p in moved if p.grad is not None)
        there += 0 if self.masters is None else self.masters.summed()
        total = sum(p.numel() for p in moved)
        return 4 * (total - there) + (0 if any(part.state for part in self.parts) else 8 * total)

    def step(self) -> None:
        for part in self.parts:
            part.step()
        if self.masters is not None:
            self.masters.publish()

    def zero_grad(self) -> None:
        for part in self.parts:
            part.zero_grad(set_to_none=True)
        if self.masters is not None:
            self.masters.forget()

    def set_lr(self, lr: float) -> None:
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = lr

    def state_dict(self) -> dict[str, Any]:
        return {str(i): part.state_dict() for i, part in enumerate(self.parts)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for i, part in enumerate(self.parts):
            part.load_state_dict(state[str(i)])


def build_optimizer(model: nn.Module, config: Optim, masters: Masters | None = None) -> Optimizers:
    """The optimizer that the configuration names, over the parameters that train or the masters behind them."""
    behind = (lambda p: p) if masters is None else masters.behind
    named = [(n, behind(p)) for n, p in model.named_parameters() if p.requires_grad]
    lr, decay, betas = config.lr, config.weight_decay, tuple(config.betas)
    if config.name == "adamw":
        return Optimizers([_adamw((p for _, p in named), lr, decay, betas)], masters, named)
    if config.name != "muon":
        raise BadInput(f"actor_rollout_ref.actor.optim.name={config.name}: known are adamw and muon")
    matrices = [p for n, p in named if p.ndim == 2 and not any(k in n for k in ("embed", "lm_head", "value_head"))]
    chosen = {id(p) for p in matrices}
    rest = [p for _, p in named if id(p) not in chosen]
    parts: list[torch.optim.Optimizer] = []
    if matrices:
        parts.append(torch.optim.Muon(matrices, lr=lr, weight_decay=decay, adjust_lr_fn="match_rms_adamw"))
    return Optimizers([*parts, _adamw(rest, lr, decay, betas)] if rest else parts, masters, named)


def _adamw(params: Iterable[nn.Parameter], lr: float, decay: float, betas: tuple[float, ...]) -> torch.optim.Optimizer:
    params = list(params)
    fused = any(p.is_cuda for p in params)
    return torch.optim.AdamW(params, lr=lr, weight_decay=decay, betas=(betas[0], betas[1]), fused=fused)


def warmup_steps(config: Optim, total: int) -> int:
    """How many of ``total`` steps the learning rate rises."""
    given = config.lr_warmup_steps
    return given if given >= 0 else int(config.lr_warmup_steps_ratio * total)


def learning_rate(config: Optim, step: int, total: int) -> float:
    """The learning rate of step ``step`` (from 0) out of ``total``."""
    warmup = warmup_steps(config, total)
    if step < warmup:
        return config.lr * (step + (0 if config.zero_indexed_step else 1)) / warmup
    progress = min(1.0, (step - warmup) / max(1, total - warmup))
    if config.lr_scheduler_type == "constant":
        return config.lr
    if config.lr_scheduler_type == "linear":
        shape = 1 - progress
    elif config.lr_scheduler_type == "cosine":
        shape = 0.5 * (1 + math.cos(math.pi * progress))
    else:
        raise BadInput(f"lr_scheduler_type={config.lr_scheduler_type}: known are constant, linear and cosine")
    return config.lr * (config.min_lr_ratio + (1 - config.min_lr_ratio) * shape)
