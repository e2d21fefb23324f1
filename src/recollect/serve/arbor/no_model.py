"""What a server samples with before a client has named a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from recollect.types import Completion, Sampling


@dataclass
class NothingDone:
    """The statistics of a sampler without weights."""

    steps: int = 0
    prompt_tokens: int = 0
    computed_prompt_tokens: int = 0
    sampled_tokens: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    peak_rows: int = 0
    decoding: int = 0
    waiting: int = 0
    outside: bool = False
    gpu_seconds: float | None = None


class NoModel:
    """A sampler without weights."""

    version, window, vocabulary = -1, 1, 1

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, watch: Callable[[list[int]], None] | None = None
    ) -> Completion:
        raise RuntimeError("no model is loaded")

    def take_weights(self, version: int, weights: Any) -> None:
        raise RuntimeError("no model is loaded")

    def free(self) -> None: ...

    def restore(self) -> None: ...

    def close(self) -> None: ...

    def statistics(self) -> NothingDone:
        """Nothing was done."""
        return NothingDone()

    def weights_digest(self) -> str:
        """Of no weights."""
        return ""
