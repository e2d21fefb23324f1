"""The learner owns the weights and the optimizer. It computes log-probabilities and makes updates."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from recollect.algos.packed import Packed
from recollect.config import Optim
from recollect.models.attention import focus
from recollect.train.forward import logprobs_and_entropy
from recollect.train.optim import Optimizers, build_optimizer, learning_rate

Loss = Callable[[Packed, Tensor, Tensor], Tensor]  # (micro-batch, entries' logprobs, entries' entropies) → scalar


class Learner:
    """A model in float32, computed in ``dtype``, and its optimizer."""

    def __init__(
        self,
        model: Any,
        optim: Optim,
        total_updates: int,
        dtype: torch.dtype,
        grad_clip: float = 1.0,
        threads: int = 0,
        frozen: bool = False,
    ) -> None:
        self.model = model.float()
        focus(self.model)
        self.device = next(model.parameters()).device
        self.dtype = dtype
        self.optim = optim
        self.optimizer = Optimizers([]) if frozen else build_optimizer(model, optim)
        self.total_updates = total_updates
        self.updates = 0
        self.grad_clip = grad_clip
        self.threads = threads  # CPU threads to compute with; 0: leave them as they are

    def compute(self) -> AbstractContextManager[Any]:
        """The context in which the model computes in its compute type."""
        if self.threads and torch.get_num_threads() != self.threads:
            torch.set_num_threads(self.threads)
        if self.dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype)

    @torch.no_grad()
    def logprobs(self, packs: Iterable[Packed], entries: int, temperature: float = 1.0) -> Tensor:
        """[entries] log-probabilities of all trained tokens under the current weights."""
        self.model.eval()
        out = torch.zeros(entries, device=self.device)
        for packed in packs:
            packed = packed.to(self.device)
            with self.compute():
                logprob, _ = logprobs_and_entropy(self.model, packed, temperature)
            out[packed.entry] = logprob[packed.entry_target]
        return out

    def backward(self, packs: Iterable[Packed], loss: Loss, temperature: float = 1.0) -> float:
        """Accumulate gradients over micro-batches and return the summed loss.

        The loss of an entry must already carry its share of the whole mini-batch, so that the sum over micro-batches
        is the loss whatever the split.
        """
        self.model.train()
        total = torch.zeros((), device=self.device)
        for packed in packs:
            packed = packed.to(self.device)
            with self.compute():
                logprob, entropy = logprobs_and_entropy(self.model, packed, temperature)
            value = loss(packed, logprob[packed.entry_target], entropy[packed.entry_target])
            value.backward()
            total += value.detach()
        return float(total)

    def step(self) -> dict[str, float]:
        """Apply the accumulated gradients; a non-finite gradient is dropped and reported."""
        lr = learning_rate(self.optim, self.updates, self.total_updates)
        self.optimizer.set_lr(lr)
        norm = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.grad_clip))
        finite = norm == norm and norm != float("inf")
        if finite:
            self.optimizer.step()
        self.optimizer.zero_grad()
        self.updates += 1
        return {"grad_norm": norm if finite else 0.0, "lr": lr, "skipped_updates": float(not finite)}

    def skip(self) -> None:
        """Pass over an update that has no gradient; the learning rate's schedule goes on."""
        self.updates += 1

    def state(self) -> dict[str, Any]:
        """Everything but the weights that a resumed run needs."""
        return {"optimizer": self.optimizer.state_dict(), "updates": self.updates}

    def load_state(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self.updates = int(state["updates"])
