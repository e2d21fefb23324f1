"""What the engine asks of the code that computes tokens.

`plain.py` is the complete implementation, with the operations of torch alone. `cpu/` and `cuda/` compute the same,
faster. A new backend is one file with a class of this interface, and a line in `choose.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from recollect.engine.kv_cache import KVCache
from recollect.engine.prefix import PrefixChunk
from recollect.engine.request import EngineRequest
from recollect.engine.row_state import RowState
from recollect.engine.sampling import Sampled

Deliver = Callable[[Sampled], None]  # takes in the sampled tokens: rows that have ended leave


@dataclass(frozen=True)
class AdmissionRules:
    """How a backend wants prompts to come in."""

    long: int  # a prompt with more tokens of its own than this is prefilled as a prefix, in chunks
    max_pairs: int | None  # pairs of a query and a key, padded, that the rows of one step may join with; None: any
    join_early: bool = False  # a row may join in the step that prefills the last chunk of its prefix
    min_reuse: float = 0.0  # share of a prefix that must be known already to be worth copying


class Backend(Protocol):
    """Computes the steps of the engine's rows, and owns the memory of their keys and values."""

    rules: AdmissionRules
    prompt_tail: int  # tokens at the end of a prompt that are not prefilled: the row's first decode step takes them
    handover: int  # completions that may be handed to their callers between two steps (or a fourth of the rows)

    @property
    def cache(self) -> KVCache:
        """Where the keys and values of rows are."""
        ...

    def rows_that_fit(self, requests: Sequence[EngineRequest]) -> int:
        """How many of these requests may have rows side by side."""
        ...

    def step(self, state: RowState, joining: list[EngineRequest], chunks: list[PrefixChunk], deliver: Deliver) -> None:
        """Prefill the prompts of the requests that join and these chunks of prefixes, and decode a token for every row.

        The joining requests are added to ``state``. Sampled tokens go to ``deliver``, at once or, where a device runs
        ahead, in the next call.
        """
        ...

    def flush(self, state: RowState, deliver: Deliver) -> None:
        """Deliver all that was sampled and has not been delivered."""
        ...

    def remove(self, state: RowState, row: int) -> None:
        """Free a row's slot, before the row is taken out and the last row takes its place."""
        ...

    def gpu_seconds(self) -> float | None:
        """How long a GPU has worked on steps, where that is known."""
        ...

    def reset(self) -> None:
        """Forget the rows, and all that was derived from the weights."""
        ...

    def free(self) -> None:
        """Give the memory of keys and values back until the next step."""
        ...
