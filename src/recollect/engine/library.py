"""The engine of models that compute rows in the library's own way: its forward pass, its attention, its cache.

Requests that begin together with prompts of one length go on side by side, so the samples of one task do; equal prompts
are prefilled once. Nothing is padded, which layers with a state would take for tokens. What earlier requests computed
is not used again.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recollect.engine.choose import choose_sampler
from recollect.engine.loop import EngineLoop
from recollect.engine.request import EngineRequest
from recollect.engine.sampling import sample_rows

CACHES = ("past_key_values", "cache_params")  # what models call what they keep of a row


@dataclass
class Cohort:
    """Rows of one length, and what the model keeps of them."""

    requests: list[EngineRequest]
    cache: dict[str, Any]

    def choose(self, rows: Sequence[int], device: torch.device) -> None:
        """Go on with some rows; one may be taken several times."""
        for cache in self.cache.values():
            cache.reorder_cache(torch.tensor(rows, device=device))


class LibraryEngine(EngineLoop):
    """Batches of equal length over one transformers model as it is.

    ``cached`` False computes every row again for each token, for models that keep nothing between steps that could be
    chosen by row.
    """

    def __init__(
        self,
        model: Any,
        decode: Callable[[Sequence[int]], str],
        max_rows: int = 256,
        cached: bool = True,
        version: int = 0,
    ) -> None:
        super().__init__(model, decode, max_rows, version)
        self.max_rows, self.cached = max_rows, cached
        self.sampler = choose_sampler(self.device)
        self.cohorts: list[Cohort] = []
        self._waiting: list[EngineRequest] = []
        self._last = {"logits_to_keep": 1} if "logits_to_keep" in inspect.signature(model.forward).parameters else {}

    @property
    def waiting(self) -> list[EngineRequest]:
        """Requests that have no row yet."""
        return self._waiting

    def _forget(self) -> None:
        super()._forget()
        self.cohorts = []

    @torch.inference_mode()
    def step(self) -> None:
        """Sample one token for every row, and for those that join."""
        for row in [i for i, r in enumerate(self.state.requests) if r.abandoned][::-1]:
            self._remove(row)
        logits = {r: row for cohort in self.cohorts for r, row in self._decode(cohort).items()}
        for group in self._joining():
            logits |= self._prefill(group)
        if not logits:
            return
        self._deliver(sample_rows(torch.stack([logits[r] for r in self.state.requests]), self.state, self.sampler))
        self.stats.steps += 1
        self.stats.peak_rows = max(self.stats.peak_rows, len(logits))

    def _joining(self) -> list[list[EngineRequest]]:
        """Requests that get a row now, those with prompts of one length together, equal ones side by side."""
        self._waiting = [r for r in self._waiting if not r.abandoned]
        room = max(0, self.max_rows - len(self.state.requests))
        chosen, self._waiting = self._waiting[:room], self._waiting[room:]
        groups: dict[int, list[EngineRequest]] = {}
        for request in chosen:
            groups.setdefault(len(request.prompt), []).append(request)
        return [sorted(group, key=lambda r: r.prompt.tobytes()) for group in groups.values()]

    def _prefill(self, group: list[EngineRequest]) -> dict[EngineRequest, Tensor]:
        """Prefill the prompts of rows that join."""
        prompts, which = np.unique(np.stack([r.prompt for r in group]), axis=0, return_inverse=True)
        found, cache = self._model(prompts, {})
        rows = which.reshape(-1).tolist()
        cohort = Cohort(group, cache)
        if self.cached and rows != list(range(len(prompts))):
            cohort.choose(rows, self.device)
        self.cohorts.append(cohort)
        for request in group:
            self.state.add(request)
        self.stats.computed_prompt_tokens += prompts.size
        return {r: found[row] for r, row in zip(group, rows, strict=True)}

    def _decode(self, cohort: Cohort) -> dict[EngineRequest, Tensor]:
        """[rows] logits after the newest token of each row."""
        place = {r: i for i, r in enumerate(self.state.requests)}
        sampled = [self.state.ids[place[r], : self.state.count[place[r]]] for r in cohort.requests]
        if self.cached:
            tokens = np.stack([ids[-1:] for ids in sampled])
        else:
            tokens = np.stack([np.concatenate([r.prompt, i]) for r, i in zip(cohort.requests, sampled, strict=True)])
        found, cohort.cache = self._model(tokens, cohort.cache)
        return dict(zip(cohort.requests, found, strict=True))

    def _model(self, tokens: np.ndarray, cache: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
        """[rows, vocabulary] logits of the next tokens, and what the model keeps."""
        out = self.model(
            input_ids=torch.from_numpy(tokens).to(self.device), use_cache=self.cached, **cache, **self._last
        )
        kept = {name: out[name] for name in CACHES if self.cached and out.get(name) is not None}
        return out.logits[:, -1], kept

    def _remove(self, row: int) -> None:
        request = self.state.remove(row)
        cohort = next(c for c in self.cohorts if request in c.requests)
        left = [i for i, r in enumerate(cohort.requests) if r is not request]
        if not left:
            self.cohorts.remove(cohort)
            return
        cohort.requests = [cohort.requests[i] for i in left]
        cohort.choose(left, self.device)
