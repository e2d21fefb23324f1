"""How many ids are pending: as many as the client has groups, told from what it sampled."""

from __future__ import annotations

import pytest

from recollect.serve.arbor.payloads import PostedGroup
from recollect.serve.arbor.rounds import Rounds
from recollect.serve.protocol import BadRequest


def group(digest: str = "x") -> PostedGroup:
    return PostedGroup((), {}, digest)


def sample(rounds: Rounds, count: int) -> None:
    for _ in range(count):
        rounds.note_sampled()


@pytest.mark.parametrize(("examples", "predictors", "validation"), [(1, 1, 0), (3, 1, 7), (2, 2, 50), (1, 3, 1)])
def test_as_many_ids_as_examples_times_predictors(examples: int, predictors: int, validation: int) -> None:
    rounds, n, used = Rounds(4), examples * predictors, set[int]()
    for _ in range(3):
        sample(rounds, validation)
        assert set(rounds.ask()) - used, "the client waits for something to fill"
        sample(rounds, 4 * n)
        ids = [i for i in rounds.ask() if i not in used]
        assert len(ids) == n
        sample(rounds, validation)
        for i in ids:
            assert not rounds.complete
            assert rounds.post(i, group())
        assert rounds.complete
        used |= set(ids)
        rounds.close()


def test_a_lost_rollout_takes_no_group_away() -> None:
    rounds = Rounds(4)
    rounds.ask()
    sample(rounds, 7)
    assert len(rounds.ask()) == 2


def test_somebody_who_asks_in_the_middle_changes_nothing() -> None:
    rounds = Rounds(4)
    rounds.ask()
    for _ in range(8):
        sample(rounds, 1)
        rounds.ask()
    assert len(rounds.ask()) == 2
    rounds.post(0, group())
    sample(rounds, 40)
    assert rounds.ask() == [1]


def test_groups_without_a_number() -> None:
    rounds = Rounds(4)
    assert rounds.post(None, group())
    assert rounds.complete
    rounds.close()
    rounds.ask()
    sample(rounds, 8)
    rounds.ask()
    rounds.post(None, group("a"))
    rounds.post(None, group("a"))
    assert rounds.complete


def test_ids_that_are_filled_or_unknown() -> None:
    rounds = Rounds(4)
    (first,) = rounds.ask()
    with pytest.raises(BadRequest, match="not pending"):
        rounds.post(first + 5, group())
    rounds.post(first, group("a"))
    assert not rounds.post(first, group("a"))
    with pytest.raises(BadRequest, match="another group"):
        rounds.post(first, group("b"))
    rounds.close()
    assert not rounds.post(first, group("a"))
    with pytest.raises(BadRequest, match="another group"):
        rounds.post(first, group("b"))
