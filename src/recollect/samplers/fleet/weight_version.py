"""A version of the weights that servers are given, and how it gets to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from recollect.samplers.sampler import NamedWeights

if TYPE_CHECKING:
    from torch import Tensor

    from recollect.samplers.fleet.vllm_client import VllmClient


class WeightVersion(Protocol):
    """One version. Its label holds a digest, so that two versions of one step are never taken for each other."""

    @property
    def version(self) -> int: ...

    @property
    def label(self) -> str:
        """What servers call it, and write on every completion."""

    @property
    def size(self) -> int:
        """Bytes in all."""

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every weight by name."""


class WeightWay(Protocol):
    """How weights get from the learner to servers (`rollout.weight_sync`)."""

    @property
    def probe(self) -> str:
        """A file that servers have to see; empty: none."""

    def open(self) -> None:
        """Make ready; what an earlier process left behind goes."""

    def refuse(self, about: Mapping[str, Any]) -> str:
        """Why weights cannot get to a server that says this of itself; empty: they can."""

    def keep(self, version: int, weights: NamedWeights) -> WeightVersion:
        """Take a version of the weights, to be given to servers now and to those that come back later."""

    async def give(self, clients: Sequence[VllmClient], weights: Any) -> list[BaseException | None]:
        """Have servers compute with a version that was kept; what went wrong with each of them."""

    def drop_old(self) -> None:
        """Forget versions that no server needs any more; called when all have the newest."""

    def clear(self) -> None:
        """Forget all of them."""
