"""Which ids the rows of a step may sample, where completions must have a form."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from recollect.engine.row_state import RowState

BITS = 32  # ids of a word


class Allowed(NamedTuple):
    """The ids that may come next."""

    words: Tensor  # [rows, words] int32; id i is bit i % 32 of word i // 32
    rows: Tensor  # [rows] whether its ids are limited

    def mask(self, vocabulary: int) -> Tensor:
        """[rows, vocabulary] which ids are allowed."""
        bits = torch.arange(BITS, dtype=torch.int32, device=self.words.device)
        return ((self.words.unsqueeze(-1) >> bits) & 1).bool().flatten(1)[:, :vocabulary]


def word_count(vocabulary: int) -> int:
    """The words that hold a bit for every id."""
    return -(-vocabulary // BITS)


def allowed_ids(state: RowState, vocabulary: int) -> np.ndarray | None:
    """[rows, words] the ids that may come next in every row; None where all may in all rows.

    A row whose matcher fails is given up, and may sample what it likes until it leaves.
    """
    limited = np.flatnonzero(state.has_grammar[: len(state.requests)])
    if not len(limited):
        return None
    words = np.full((len(state.requests), word_count(vocabulary)), -1, np.int32)
    for row in limited.tolist():
        request = state.requests[row]
        assert request.matcher is not None
        if request.abandoned:
            continue
        try:
            own = request.matcher.allowed()
        except Exception as error:
            request.fail(error)
            continue
        words[row] = 0
        words[row, : len(own)] = own[: words.shape[1]]
    return words


def follow(state: RowState, rows: np.ndarray, stopped: np.ndarray) -> np.ndarray:
    """Tell matchers of the newest ids of some rows; returns which rows end because nothing more may come."""
    ended = np.zeros(len(rows), bool)
    for place in np.flatnonzero(state.has_grammar[rows] & ~stopped):
        row = rows[place]
        request = state.requests[row]
        assert request.matcher is not None
        if request.abandoned:
            continue
        try:
            request.matcher.take(int(state.ids[row, state.count[row] - 1]))
        except Exception as error:
            request.fail(error)
            continue
        ended[place] = request.matcher.ended and not request.sampling.stop_ids
    return ended
