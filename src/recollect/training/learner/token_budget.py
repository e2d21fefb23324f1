"""The token budget of a micro-batch, halved after the GPU ran out of memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from recollect.packing.batch import Batch
from recollect.packing.division import BatchPart
from recollect.packing.micro_batch import Packed

T = TypeVar("T")
FLOOR = 256  # tokens; with less than this per micro-batch the memory is not lost to activations


@dataclass
class Budget:
    """A token budget that shrinks when it has to, and stays so."""

    tokens: int
    warn: Callable[[str], None] = lambda message: None
    floor: int = FLOOR


def run_with_budget(
    make_packs: Callable[[int], Sequence[Packed]],
    budget: Budget,
    work: Callable[[Sequence[Packed]], T],
    reset: Callable[[], Any] = lambda: None,
) -> T:
    """``work(make_packs(tokens))``; when the GPU's memory runs out, the same again with half of what was tried.

    ``reset`` drops what a broken try has left behind, such as part of a gradient. ``work`` starts from the beginning
    each time, so what it adds up has to be made inside it. Losses do not depend on how a batch is cut.
    """
    while True:
        packs = make_packs(budget.tokens)
        try:
            return work(packs)
        except torch.OutOfMemoryError:
            smaller = min(budget.tokens, max(len(p.tokens) for p in packs)) // 2
            if smaller < budget.floor:
                raise
        del packs
        reset()  # outside the handler, whose traceback keeps the tensors of the failed try alive
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        budget.tokens = smaller
        budget.warn(f"the GPU's memory ran out; going on with at most {smaller} tokens per micro-batch")


@dataclass
class MicroBatching:
    """How batches are cut into micro-batches for one kind of pass."""

    budget: Budget
    most: int | None = None  # sequences in each
    share: bool = True  # sequences share the prefixes that they have in common
    part: BatchPart | None = None  # what this process computes of each batch; None: all

    def packs(self, batch: Batch, rows: Sequence[int], tokens: int) -> Sequence[Packed]:
        """Micro-batches of at most so many tokens over some sequences."""
        return batch.packs(rows, tokens, max_sequences=self.most, share=self.share, part=self.part)

    def run(
        self,
        batch: Batch,
        work: Callable[[Sequence[Packed]], T],
        rows: Sequence[int] | None = None,
        reset: Callable[[], Any] = lambda: None,
    ) -> T:
        """`run_with_budget` over some sequences of a batch; None: all of them."""
        chosen = range(len(batch.sequences)) if rows is None else rows
        return run_with_budget(lambda tokens: self.packs(batch, chosen, tokens), self.budget, work, reset)
