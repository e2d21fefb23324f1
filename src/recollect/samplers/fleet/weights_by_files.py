"""Weights by files on storage that learner and servers share: each server verifies them before it loads them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from recollect.samplers.fleet.vllm_client import VllmClient, moving
from recollect.samplers.fleet.weight_store import StoredWeights, WeightStore
from recollect.samplers.sampler import NamedWeights


class WeightsByFiles:
    """`rollout.weight_sync=files`."""

    def __init__(self, store: WeightStore) -> None:
        self.store = store

    @property
    def probe(self) -> str:
        """A file that servers have to see."""
        return str(self.store.probe)

    def open(self) -> None:
        """Make the folder anew."""
        self.store.open()

    def refuse(self, about: Mapping[str, Any]) -> str:
        """Why a server is refused; empty: it sees the storage."""
        if about.get("sees") == self.store.token:
            return ""
        return (
            f"it does not see {self.store.folder}; weights go there by storage that learner and servers share: "
            "set actor_rollout_ref.rollout.server_storage, or weight_sync=broadcast"
        )

    def keep(self, version: int, weights: NamedWeights) -> StoredWeights:
        """Write a version."""
        return self.store.write(version, weights)

    async def give(self, clients: Sequence[VllmClient], weights: StoredWeights) -> list[BaseException | None]:
        """Have servers load a version; what went wrong with each of them."""
        return await asyncio.gather(*(load(client, weights) for client in clients), return_exceptions=True)

    def drop_old(self) -> None:
        """Delete versions that no server needs any more."""
        self.store.drop_old()

    def clear(self) -> None:
        """Delete everything."""
        self.store.clear()


async def load(client: VllmClient, weights: StoredWeights) -> None:
    """Have one server verify the files where it is, and load them."""
    await client.verify(weights.manifest(), weights)
    handover = await client.begin()
    about = {"folder": str(weights.folder), "files": list(weights.files)}
    await client.update(handover, about, moving(weights))
    await client.finish(weights)
