"""A request for one completion."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from recollect.engine.prefix import Prefix
from recollect.types import Completion, Sampling


@dataclass(eq=False)
class Request:
    """One prompt on its way to a completion."""

    prompt: np.ndarray
    sampling: Sampling
    noise: int  # key of its random numbers
    future: asyncio.Future[Completion]
    prefix: Prefix | None = None  # shared beginning it reads …
    shared: int = 0  # … and how much of it
    placed: bool = False  # looked at once for sharing
    watch: Callable[[list[int]], None] | None = None  # told of the sampled ids after every step
    held: int = 0  # tokens at the end of the prompt that are not read with it: the row's first step takes them

    @property
    def suffix(self) -> np.ndarray:
        """The part of the prompt that is this request's own and is read before its first step."""
        return self.prompt[self.shared : len(self.prompt) - self.held]

    @property
    def positions(self) -> np.ndarray:
        """Where that part is."""
        return np.arange(self.shared, self.shared + len(self.suffix))

    @property
    def ready(self) -> bool:
        """True when all that it shares has been computed."""
        return self.prefix is None or self.prefix.done >= self.shared

    @property
    def abandoned(self) -> bool:
        """True when nobody waits for it any more."""
        return self.future.done() or self.future.get_loop().is_closed()

    def attach(self, prefix: Prefix, shared: int) -> None:
        """Read the first ``shared`` tokens from a prefix."""
        self.release()
        self.prefix, self.shared = prefix, shared
        prefix.users += 1

    def release(self) -> None:
        """Stop reading the shared prefix."""
        if self.prefix is not None:
            self.prefix.users -= 1
            self.prefix = None
