"""A request for one completion."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from recollect.engine.prefix import Prefix
from recollect.images.image_ids import rotary_part
from recollect.types import Completion, Matcher, Sampling


@dataclass(eq=False)
class EngineRequest:
    """One prompt on its way to a completion."""

    prompt: np.ndarray
    sampling: Sampling
    noise: int  # key of its random numbers
    future: asyncio.Future[Completion]
    prefix: Prefix | None = None  # shared beginning that it attends to …
    shared: int = 0  # … and how many of its tokens
    matched: bool = False  # the scheduler has looked for what it shares
    watch: Callable[[list[int]], None] | None = None  # called with the sampled ids after every step
    room: int = 0  # tokens that its row may come to own; 0: nobody has asked
    matcher: Matcher | None = None  # of a completion that must have a form
    prompt_tail: int = 0  # tokens at the end of the prompt that are not prefilled: the first decode step takes them

    @property
    def suffix(self) -> np.ndarray:
        """The part of the prompt that is this request's own and is prefilled when it joins."""
        return self.prompt[self.shared : len(self.prompt) - self.prompt_tail]

    @property
    def positions(self) -> np.ndarray:
        """The positions of that part, for rotary embeddings."""
        return rotary_part(self.prompt, self.shared, self.shared + len(self.suffix))

    @property
    def ready(self) -> bool:
        """True when all that it shares has been prefilled."""
        return self.prefix is None or self.prefix.done >= self.shared

    @property
    def abandoned(self) -> bool:
        """True when nobody waits for it any more."""
        return self.future.done() or self.future.get_loop().is_closed()

    def fail(self, error: Exception) -> None:
        """Give this request up; others go on."""
        if not self.abandoned:
            self.future.set_exception(error)

    def attach(self, prefix: Prefix, shared: int) -> None:
        """Attend to the first ``shared`` tokens of a prefix."""
        self.release()
        self.prefix, self.shared = prefix, shared
        prefix.users += 1

    def release(self) -> None:
        """Attend to the shared prefix no longer."""
        if self.prefix is not None:
            self.prefix.users -= 1
            self.prefix = None
