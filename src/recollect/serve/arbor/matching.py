"""Which sampled completion a posted one is. A reward never goes to the ids of another sample.

Completions come back permuted, repeated, written anew from their fields, edited, or not at all. A posted completion is
a sampled one if both answer the same messages and say the same, and if it cannot be meant for different ids.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence, Set
from dataclasses import dataclass
from typing import Literal, TypeVar

from recollect.serve.arbor.payloads import PostedCompletion
from recollect.serve.arbor.same_fields import saying
from recollect.serve.arbor.sampled import SampledCompletion

Reason = Literal["matched", "tokenised", "repeated", "ambiguous"]
T = TypeVar("T")


@dataclass(frozen=True)
class Match:
    """What a posted completion is: a sampled one, one that was never sampled here, or one that is left out."""

    reason: Reason
    place: int = -1  # of the sampled one


@dataclass(frozen=True)
class Candidate:
    """A sampled completion and its place."""

    place: int
    row: SampledCompletion

    @property
    def ids(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What would be trained."""
        return self.row.prompt_ids, self.row.completion.ids


def matched(
    posted: Sequence[PostedCompletion],
    sampled: Sequence[tuple[int, SampledCompletion]],
    spent: Set[int] = frozenset(),
    number: int = 0,
    rollouts: int = 0,
) -> list[Match]:
    """For every posted completion what it is. All groups of a round are matched together.

    ``spent`` are the places of those that were trained on already, ``number`` is the round, and ``rollouts`` says how
    many completions the client sampled in it before it asked for the last time; later ones are a validation's.
    """
    found: list[Match] = [Match("tokenised")] * len(posted)
    known = _by([Candidate(*item) for item in sampled], lambda c: (c.row.messages, saying(c.row.text)))
    asked = _by(range(len(posted)), lambda i: (posted[i].messages, saying(posted[i].text)))
    for key, members in asked.items():
        if not (everyone := known.get(key)):
            continue
        free = [c for c in everyone if c.place not in spent]
        chosen = _nearest(free, len(members), number, rollouts)
        for i, match in zip(members, _settled([posted[i] for i in members], chosen), strict=True):
            found[i] = match
    return found


def _by(items: Sequence[T], key: Callable[[T], Hashable]) -> dict[Hashable, list[T]]:
    made: dict[Hashable, list[T]] = defaultdict(list)
    for item in items:
        made[key(item)].append(item)
    return made


def _nearest(free: Sequence[Candidate], count: int, number: int, rollouts: int) -> list[Candidate]:
    """Those that may be meant: this round's rollouts, and if they are too few, others as well, the newest first."""
    ranks = (
        lambda c: c.row.round == number and 0 < c.row.turn <= rollouts,
        lambda c: c.row.round == number,
        lambda c: True,
    )
    for rank in ranks:
        chosen = [c for c in free if rank(c)]
        if len(chosen) >= count:
            break
    return sorted(chosen, key=lambda c: (-c.row.round, c.place))


def _settled(posted: Sequence[PostedCompletion], free: Sequence[Candidate]) -> list[Match]:
    """Matches of posted completions that all say the same.

    Where every sample comes back in its own words, those tell which is which. Otherwise the client writes them anew,
    and they can only be told apart if nothing depends on it.
    """
    if not free:
        return [Match("repeated")] * len(posted)
    own = {c.row.text for c in free}
    if own != {p.text for p in posted}:
        return _assigned(posted, free)
    found: dict[int, Match] = {}
    for text, members in _by(range(len(posted)), lambda i: posted[i].text).items():
        same = [c for c in free if c.row.text == text]
        found |= zip(members, _assigned([posted[i] for i in members], same), strict=True)
    return [found[i] for i in range(len(posted))]


def _assigned(posted: Sequence[PostedCompletion], free: Sequence[Candidate]) -> list[Match]:
    """Give samples to posted completions, if it makes no difference who gets which.

    That is so if all samples have the same ids, or if as many completions as there are samples earned one reward. Where
    more come back than were sampled, some are copies.
    """
    one_reward = len({p.reward for p in posted}) == 1
    one_sample = len({c.ids for c in free}) == 1
    clear = one_reward if len(posted) > len(free) else one_sample or (one_reward and len(posted) == len(free))
    if not clear:
        return [Match("ambiguous")] * len(posted)
    taken = [Match("matched", c.place) for c in free[: len(posted)]]
    return taken + [Match("repeated")] * (len(posted) - len(taken))
