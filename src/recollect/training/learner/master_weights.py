"""Float32 weights behind the bfloat16 ones that are computed with.

The learner and the engine read the same bfloat16 weights; the optimizer moves the float32 ones, which are then rounded
into their place. Gradients of micro-batches are added up in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.training.learner.host_offload import to_host


def to_half(model: nn.Module) -> None:
    """Make the weights bfloat16; what is not a weight, such as the frequencies of positions, stays exact."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(torch.bfloat16)


class _Embedding(nn.Embedding):
    """Adds up the gradients of a token's places in float32; on CPUs torch does so in bfloat16, losing most."""

    def forward(self, ids: Tensor) -> Tensor:
        if self.weight.is_cuda or not torch.is_grad_enabled():
            return super().forward(ids)
        return F.embedding(ids, self.weight.float(), self.padding_idx).to(self.weight.dtype)


def sums_in_float(model: nn.Module) -> None:
    """Let embeddings that are computed in bfloat16 add up their gradients in float32."""
    for module in model.modules():
        if type(module) is nn.Embedding and module.max_norm is None:
            module.__class__ = _Embedding


class Masters:
    """The float32 weight of every trainable parameter of a model that is turned into bfloat16."""

    def __init__(self, model: nn.Module) -> None:
        named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
        self.weights = {name: nn.Parameter(p.detach().float()) for name, p in named}
        to_half(model)
        sums_in_float(model)
        self.computed = dict(named)
        self._of = {id(p): self.weights[name] for name, p in named}
        self._gradients: dict[str, Tensor] = {}
        for name, parameter in named:
            parameter.register_post_accumulate_grad_hook(self._hook(name))

    def _hook(self, name: str) -> Callable[[Tensor], None]:
        def take(parameter: Tensor) -> None:
            grad, parameter.grad = parameter.grad, None
            if grad is None:
                return
            if name in self._gradients:
                self._gradients[name] += grad
            else:
                self._gradients[name] = grad.float()

        return take

    def behind(self, parameter: nn.Parameter) -> nn.Parameter:
        """The weight that an optimizer moves for a parameter: its master, or itself where it has none."""
        return self._of.get(id(parameter), parameter)

    def summed(self) -> int:
        """Numbers of the gradients that are added up here."""
        return sum(gradient.numel() for gradient in self._gradients.values())

    def take(self) -> dict[str, Tensor]:
        """The gradients added up so far, which are then no longer here."""
        found, self._gradients = self._gradients, {}
        return found

    def give(self, gradients: Mapping[str, Tensor]) -> None:
        """Take gradients that were added up elsewhere, as all that there are."""
        self._gradients = dict(gradients)

    def hand_over(self) -> None:
        """Give the summed gradients to the masters, for an optimizer to read."""
        for name, gradient in self._gradients.items():
            self.weights[name].grad = gradient
        self._gradients = {}

    def forget(self) -> None:
        """Drop the gradients."""
        self._gradients = {}
        for weight in self.weights.values():
            weight.grad = None

    @torch.no_grad()
    def publish(self) -> None:
        """Round the masters into the weights that are computed with."""
        torch._foreach_copy_([self.computed[n].data for n in self.weights], [w.data for w in self.weights.values()])

    @torch.no_grad()
    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Take stored weights, exactly, and publish them."""
        for name, weight in self.weights.items():
            weight.copy_(weights[name])
        self.publish()

    def park(self) -> None:
        """Move the masters to host memory."""
        for weight in self.weights.values():
            if weight.is_cuda:
                weight.data = to_host(weight.data)

    def wake(self) -> None:
        """Move them back to where their parameters are."""
        for name, weight in self.weights.items():
            weight.data = weight.data.to(self.computed[name].device, non_blocking=True)
