"""What the trainer, the evaluation and the server ask of a sampler, wherever it computes.

A sampler holds one model's weights under a version and completes prompts with them. The engine of this process is one;
a group of servers can be another. Who only needs completions asks for a `Policy` (types.py), which endpoints and
scripted experts are too: they have version -1, and nobody here gives them weights.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from recollect.types import Completion, Policy, Sampling

if TYPE_CHECKING:
    from torch import Tensor

NamedWeights = Iterable[tuple[str, "Tensor"]]  # names and weights of a plain model, adapters merged, one at a time


class SamplerStatistics(Protocol):
    """What a sampler has done since it was made, and what it has under way."""

    steps: int
    prompt_tokens: int  # prompt tokens asked for
    computed_prompt_tokens: int  # prompt tokens that went through the model
    sampled_tokens: int
    prefill_seconds: float  # of steps that prefill something
    decode_seconds: float  # of those that do not
    peak_rows: int
    decoding: int  # rows under way
    waiting: int  # requests that have no row yet
    gpu_seconds: float | None  # in which a GPU worked on steps of this process, where that is known
    outside: bool  # other processes sample, while this one waits or runs agents


class TakesWeights(Protocol):
    """Where the weights of a learner go."""

    def take_weights(self, version: int, weights: NamedWeights | None) -> None:
        """Sample with these weights from now on, and forget what was computed with others.

        None: the weights have changed in the memory that this sampler reads. Nothing may be under way.
        """


class Sampler(Policy, TakesWeights, Protocol):
    """Completes prompts with weights of a known version."""

    @property
    def version(self) -> int:
        """The version of the weights; every completion carries the one that sampled it."""

    @property
    def window(self) -> int:
        """Tokens that a prompt and its completion may have together."""

    @property
    def vocabulary(self) -> int:
        """Ids that the model knows; it may be more than the tokenizer's."""

    def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, watch: Callable[[list[int]], None] | None = None
    ) -> Awaitable[Completion]:
        """One completion; ``watch`` is called with the ids sampled so far. Cancelling the caller drops the request."""

    def free(self) -> None:
        """Give memory to others, the update above all; nothing may be under way."""

    def restore(self) -> None:
        """Take the memory back. New weights and requests come only after this."""

    def statistics(self) -> SamplerStatistics:
        """What was done so far, and what is under way."""

    def weights_digest(self) -> str:
        """A digest of the weights by name: the same for the same weights, whoever holds them."""

    def close(self) -> None:
        """End what it runs beside this process; it is not asked again."""
