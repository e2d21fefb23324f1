"""What a rank shares with the others: weights that are spread over them, sums, and equal numbers of passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from recollect.dist.place import RankPlace
from recollect.models.plain_rows import is_plain
from recollect.packing.division import BatchPart
from recollect.packing.micro_batch import Packed, pack
from recollect.packing.tree import build_tree
from recollect.training.learner.master_weights import sums_in_float
from recollect.training.learner.world import World
from recollect.types import BadInput

REACH = 6  # × the width: where a token's attention costs as much as the products with a layer's weights


class Root(nn.Module):
    """What every pass goes through, so that FSDP puts the weights together before it and adds gradients up after it."""

    def __init__(self, *modules: nn.Module) -> None:
        super().__init__()
        self.held = nn.ModuleList(modules)

    def forward(self, what: Callable[..., Any], model: Any, packed: Packed, *more: Any) -> Any:
        return what(model, packed, *more)


class RankWorld(World):
    """The world of one of several ranks.

    ``shards`` ranks hold one copy of the weights together; each such set of ranks has a copy (HSDP), and with 1 every
    rank has all weights. ``dtype`` is what is computed in; the weights and their gradients' sums are float32.
    """

    def __init__(self, place: RankPlace, dtype: torch.dtype, width: int, reshard: bool = True) -> None:
        self.place, self.rank, self.size = place, place.rank, place.size
        self.part = BatchPart(place.rank, place.size, REACH * width)
        self.device = torch.device(place.device, place.gpu) if place.device == "cuda" else torch.device("cpu")
        self.dtype, self.shards, self.reshard = dtype, place.shards, reshard
        self.beside: Sequence[nn.Module] = ()  # a value head on the first model's body
        if place.shards < place.size:
            shape, names = (place.size // place.shards, place.shards), ("replicas", "shards")
            self.mesh = dist.init_device_mesh(place.device, shape, mesh_dim_names=names)
        else:
            self.mesh = dist.init_device_mesh(place.device, (place.size,), mesh_dim_names=("shards",))

    def sum(self, numbers: Tensor) -> Tensor:
        """Numbers added up over all ranks, in each of them."""
        found = numbers.detach().clone()
        dist.all_reduce(found)
        return found

    def total(self, number: float) -> float:
        """One number added up over all ranks."""
        found = torch.tensor(float(number), dtype=torch.float64)
        dist.all_reduce(found)
        return float(found)

    def even(self, packs: Sequence[Packed]) -> Sequence[Packed]:
        """As many micro-batches in every rank; those that are filled up with train nothing."""
        most = torch.tensor(len(packs))
        dist.all_reduce(most, dist.ReduceOp.MAX)
        return [*packs, *(idle_pass() for _ in range(int(most) - len(packs)))]

    def shard(self, model: nn.Module) -> nn.Module:
        """Spread the weights of a model, and of what is beside the first one, layer by layer."""
        from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

        if is_plain(getattr(model, "body", model)):
            raise BadInput("models of this kind compute their rows one way only, which several ranks cannot share")
        half = self.dtype != torch.float32
        policy = MixedPrecisionPolicy(self.dtype if half else None, torch.float32 if half else None)
        if half:
            sums_in_float(model)
        for layer in layers_of(model):
            fully_shard(layer, mesh=self.mesh, mp_policy=policy, reshard_after_forward=self.reshard)
        beside, self.beside = self.beside, ()
        # the root's weights, embeddings and head, stay together until the backward pass: others read the head as well
        root: Any = fully_shard(Root(model, *beside), mesh=self.mesh, mp_policy=policy, reshard_after_forward=False)
        for module in root.modules():
            if isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(1.0)  # losses have the weights of the whole batch: add up, no means
                module.set_force_sum_reduction_for_comms(True)
            if "together" in vars(module):
                module.together = torch.empty(0)  # a copy of weights that are elsewhere now
        made: nn.Module = root
        return made

    def settle(self, root: nn.Module | None) -> None:
        """Have every process hold its own part alone, also where a pass has left weights put together."""
        from torch.distributed.fsdp import FSDPModule

        for module in () if root is None else root.modules():
            if isinstance(module, FSDPModule):
                module.reshard()


def layers_of(model: nn.Module) -> list[nn.Module]:
    """The layers of a transformers model: what holds an attention each."""
    attentions = (n.split(".") for n, m in model.named_modules() if getattr(m, "layer_idx", None) is not None)
    numbered = ((parts, next((i for i, part in enumerate(parts) if part.isdigit()), 0)) for parts in attentions)
    names = dict.fromkeys(".".join(parts[: at + 1]) for parts, at in numbered if at)
    return [model.get_submodule(name) for name in names]


def idle_pass() -> Packed:
    """A micro-batch without anything to train: two tokens, of which nobody reads the second."""
    made = pack([build_tree([0], [np.zeros(2, np.int64)])], [np.array([False, True])], [0])
    return replace(made, entry=made.entry[:0], entry_target=made.entry_target[:0])
