"""Every estimator against plain loops, against values worked out by hand, and across layouts."""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.algos.advantage import ADVANTAGES
from recollect.packing.batch import build_batch
from recollect.types import Completion, Failure, Group, Score, Task, Trajectory, Turn
from tests.packing.layouts import Path, Step, flat, in_order, merged, padded, random_paths

OPTIONS = [{}, {"gamma": 0.9, "lam": 0.8, "use_std": False}]
WHITENED = ("gae", "reinforce_plus_plus", "reinforce_plus_plus_baseline")


def call(name: str, data: dict[str, Any], **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return ADVANTAGES[name](**data, **options)


# ---- the same by plain loops ----


def loops(name: str, paths: list[Path], gamma: float = 1.0, lam: float = 1.0, use_std: bool = True) -> Any:
    """(advantages, returns), for each trajectory a list over its trained tokens."""
    score = {p.name: sum(s.reward for s in p.line) for p in paths}
    advantages: list[list[float]] = []
    returns: list[list[float]] = []
    for path in paths:
        mates = [p for p in paths if p.group == path.group]
        scores = [score[p.name] for p in mates]
        n, mean, own, line = len(mates), statistics.fmean(scores), score[path.name], path.line
        to_go = [sum(gamma ** (k - t) * line[k].reward for k in range(t, len(line))) for t in range(len(line))]
        if name == "gae":
            following = [s.value for s in line[1:]] + [0.0]
            delta = [s.reward + gamma * v - s.value for s, v in zip(line, following, strict=True)]
            made = [sum((gamma * lam) ** (k - t) * delta[k] for k in range(t, len(line))) for t in range(len(line))]
            advantages.append(made)
            returns.append([a + s.value for a, s in zip(made, line, strict=True)])
            continue
        if name == "reinforce_plus_plus":
            made = to_go
        elif name == "remax":
            made = [g - path.greedy for g in to_go]
        elif n == 1:
            made = [0.0] * len(line)
        elif name == "grpo":
            made = [(own - mean) / (statistics.stdev(scores) + 1e-6 if use_std else 1.0)] * len(line)
        elif name == "rloo":
            made = [own - (sum(scores) - own) / (n - 1)] * len(line)
        elif name == "opo":
            lengths = [len(p.line) for p in mates]
            made = [own - sum(x * s for x, s in zip(lengths, scores, strict=True)) / sum(lengths)] * len(line)
        elif name == "gpg":
            scoring = sum(s != 0 for s in score.values())
            made = [(own - mean) * len(paths) / max(scoring, 1)] * len(line)
        else:
            assert name == "reinforce_plus_plus_baseline"
            made = [own - mean] * len(line)
        advantages.append(made)
        returns.append(to_go if name in ("reinforce_plus_plus", "remax") else made)
    if name in WHITENED:
        everything = [a for made in advantages for a in made]
        count = len(everything)
        mu = sum(everything) / (count + 1e-8)
        variance = sum((a - mu) ** 2 for a in everything) / (count + 1e-8) * (count / (count - 1) if count > 1 else 1)
        advantages = [[(a - mu) / math.sqrt(variance + 1e-8) for a in made] for made in advantages]
        if name == "reinforce_plus_plus_baseline":
            returns = advantages
    return advantages, returns


@pytest.mark.parametrize("name", ADVANTAGES)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), dense=st.booleans(), options=st.sampled_from(OPTIONS))
def test_it_equals_plain_loops_in_every_layout(name: str, seed: int, dense: bool, options: dict[str, Any]) -> None:
    """Padding, the order of trajectories, flat or in rows: the layout does not matter."""
    rng = np.random.default_rng(seed)
    paths = random_paths(rng, dense)
    expected = loops(name, paths, **options)
    for extra in (0, 3):
        rows = merged(paths, rng)
        for data in (padded(rows, extra), flat(rows)):
            made = call(name, data, **options)
            for found, wanted in zip(made, expected, strict=True):
                assert found.shape == data["rewards"].shape
                assert (found[data["mask"] == 0] == 0).all()
                for ours, theirs in zip(in_order(rows, paths, found), wanted, strict=True):
                    assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", ADVANTAGES)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), options=st.sampled_from(OPTIONS))
def test_cutting_a_trajectory_into_rows_changes_nothing(name: str, seed: int, options: dict[str, Any]) -> None:
    rng = np.random.default_rng(seed)
    paths = random_paths(rng, dense=True)
    whole = [Path(p.name, p.group, [[s for row in p.rows for s in row]], p.greedy) for p in paths]
    pieces = [Path(p.name, p.group, [[s] for row in p.rows for s in row], p.greedy) for p in paths]
    results = []
    for cut in (whole, paths, pieces):
        rows = merged(cut, rng)
        results.append([in_order(rows, cut, found) for found in call(name, padded(rows), **options)])
    for other in results[1:]:
        for ours, theirs in zip(other, results[0], strict=True):
            for a, b in zip(ours, theirs, strict=True):
                assert a == pytest.approx(b, rel=1e-9, abs=1e-9)


# ---- by hand ----


def tokens(*rows: list[float], mask: list[list[int]] | None = None, **ids: list[int]) -> dict[str, Any]:
    rewards = torch.tensor(rows, dtype=torch.float64)
    return {
        "rewards": rewards,
        "values": None,
        "mask": torch.ones_like(rewards) if mask is None else torch.tensor(mask),
        "trajectories": torch.arange(len(rows)),
        "groups": torch.zeros(len(rows)),
    } | {k: torch.tensor(v) for k, v in ids.items()}


def test_gae_by_hand() -> None:
    """One trajectory of two rows with an observation between its tokens; γ = 1/2, λ = 1/2."""
    data = tokens([1.0, 9.0], [2.0, 9.0], mask=[[1, 0], [1, 0]], trajectories=[4, 4])
    data["values"] = torch.tensor([[3.0, 7.0], [1.0, 7.0]], dtype=torch.float64)
    advantages, returns = call("gae", data, gamma=0.5, lam=0.5)
    # δ₂ = 2 − 1 = 1; δ₁ = 1 + 1/2 − 3 = −3/2; A₂ = 1, A₁ = −3/2 + 1/4 = −5/4; mean −1/8, variance 2 · (9/8)²
    assert returns.tolist() == [[1.75, 0.0], [2.0, 0.0]]
    one = 1.125 / math.sqrt(2 * 1.125**2 + 1e-8)
    assert advantages[:, 0].tolist() == pytest.approx([-one, one], rel=1e-7)
    assert advantages[:, 1].tolist() == [0.0, 0.0]


SCORES = ([0.0, 1.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [1.0, 1.0], [3.0, 1.0])
GROUPS = [0, 0, 0, 0, 5, 5]
BY_HAND = {
    # group 0: scores 1 0 0 0, mean 1/4, unbiased variance ((3/4)² + 3·(1/4)²) / 3 = 1/4; group 5: 2 and 4, variance 2
    "grpo": [0.75 / (0.5 + 1e-6), *[-0.25 / (0.5 + 1e-6)] * 3, *[s / (math.sqrt(2) + 1e-6) for s in (-1, 1)]],
    "rloo": [1, *[-1 / 3] * 3, -2, 2],
    "opo": [0.75, -0.25, -0.25, -0.25, -1, 1],  # all are equally long
    "gpg": [2 * x for x in (0.75, -0.25, -0.25, -0.25, -1, 1)],  # three of six score
}


@pytest.mark.parametrize("name", BY_HAND)
def test_groups_by_hand(name: str) -> None:
    advantages, returns = call(name, tokens(*SCORES, groups=GROUPS))
    assert advantages.tolist() == [pytest.approx([a, a], rel=1e-12) for a in BY_HAND[name]]
    assert torch.equal(advantages, returns)


def test_options_by_hand() -> None:
    plain, _ = call("grpo", tokens(*SCORES, groups=GROUPS), use_std=False)
    assert plain[:, 0].tolist() == [0.75, -0.25, -0.25, -0.25, -1, 1]
    data = tokens([1.0, 0.0], [0.0, 4.0], mask=[[1, 0], [1, 1]])  # lengths 1 and 2: baseline (1·1 + 2·4) / 3 = 3
    assert call("opo", data)[0].tolist() == [[-2.0, 0.0], [1.0, 1.0]]
    advantages, returns = call("remax", data, gamma=0.5, baselines=torch.tensor([0.25, 3.0]))
    assert advantages.tolist() == [[0.75, 0.0], [-1.0, 1.0]]
    assert returns.tolist() == [[1.0, 0.0], [2.0, 4.0]]


@pytest.mark.parametrize("name", ["grpo", "rloo", "opo", "gpg"])
def test_a_group_without_signal_has_exactly_none(name: str) -> None:
    """Sequences without advantage are not computed, so rounding must not give them one: 0.1 + 0.1 + 0.1 ≠ 0.3."""
    advantages, _ = call(name, tokens([3.0], [0.1], [0.1], [0.1], groups=[7, 2, 2, 2]))
    assert advantages.flatten().tolist() == [0.0] * 4


def test_what_is_missing_is_said() -> None:
    with pytest.raises(ValueError, match="gae needs values"):
        call("gae", tokens([1.0]))
    with pytest.raises(ValueError, match="remax needs baselines"):
        call("remax", tokens([1.0]))
    with pytest.raises(ValueError, match="does not fit"):
        call("grpo", tokens([1.0], [2.0], trajectories=[1, 2, 3]))
    with pytest.raises(ValueError, match="mask"):
        call("grpo", tokens([1.0], [2.0], mask=[[1, 1], [1, 1]]))


@pytest.mark.parametrize("name", ADVANTAGES)
def test_types_devices_and_empty_batches(name: str) -> None:
    paths = [Path(0, 0, [[Step(1.0, 0.5), Step(0.0, 0.25)]]), Path(1, 0, [[Step(0.5, 0.25), Step(0.0, 0.0)]])]
    data = padded([(p, 0) for p in paths])
    exact = call(name, data)
    narrow = {k: v.float() if k in ("rewards", "values", "baselines") else v for k, v in data.items()}
    narrow["values"].requires_grad_()
    for wide, short in zip(exact, call(name, narrow), strict=True):
        assert short.dtype == torch.float32
        assert not short.requires_grad
        torch.testing.assert_close(short, wide.float())
    named = data | {"trajectories": np.array(["b", "a"]), "groups": ["task", "task"], "mask": data["mask"].bool()}
    for wide, other in zip(exact, call(name, named), strict=True):
        torch.testing.assert_close(other, wide)
    for wide, spread in zip(exact, call(name, data | {"groups": data["groups"][:, None].expand(2, 2)}), strict=True):
        assert torch.equal(wide, spread)
    nothing = {k: v[:0] if k != "mask" else torch.zeros(0, 2) for k, v in data.items()}
    assert [x.shape for x in call(name, nothing)] == [(0, 2), (0, 2)]
    untrained = call(name, data | {"mask": torch.zeros(2, 2)})
    assert [x.tolist() for x in untrained] == [[[0.0, 0.0], [0.0, 0.0]]] * 2


def test_groups_of_roles() -> None:
    """Two roles in each trajectory: each role's group has a trajectory once, with the trajectory's whole score."""
    rewards = torch.tensor([0.0, 1.0, 0.0, 0.0, 5.0], dtype=torch.float64)
    trajectories = torch.tensor([0, 0, 1, 1, 2])
    groups = ["memory", "qa", "memory", "qa", "qa"]  # the third has no turn of the first role
    advantages, _ = ADVANTAGES["grpo"](rewards, None, torch.ones(5), trajectories, groups, use_std=False)
    assert advantages.tolist() == [0.5, -1.0, -0.5, -2.0, 3.0]


# ---- from rollouts ----


def trajectory(reward: float, turns: int) -> Trajectory:
    made = [Turn("agent", (1, 2, t), Completion((5, 6), (-1.0, -1.0), "stop", 0, "")) for t in range(turns)]
    return Trajectory("t", 0, made, score=Score(reward))


def test_a_long_trajectory_counts_once() -> None:
    """Nine turns with reward 1 and one turn with reward 0: the mean is 1/2, not 9/10."""
    failed = Trajectory("t", 2, [], failure=Failure("timeout", "late"))
    batch, made = build_batch([Group(Task("t", "q"), [trajectory(1.0, 9), failed, trajectory(0.0, 1)])])
    assert [t.reward for t in made] == [1.0, 0.0]  # one entry for each trajectory, a failed one is not a reward of zero
    assert len(batch.sequences) == 10
    rewards = torch.zeros(20)
    rewards[17] = 1.0  # on the last trained token of the long one
    advantages, _ = ADVANTAGES["grpo"](
        rewards, None, torch.ones(20), batch.trajectories_E, [0] * batch.entries, use_std=False
    )
    assert advantages.tolist() == [0.5] * 18 + [-0.5] * 2


def test_a_hundred_thousand_tokens_are_quick_and_exact() -> None:
    """The doubling scan against the recurrence, on one long trajectory."""
    rng = np.random.default_rng(0)
    rewards, values = rng.normal(size=(2, 100_000))
    data = {k: torch.from_numpy(v) for k, v in (("rewards", rewards), ("values", values))}
    ones = torch.ones(100_000)
    _, returns = ADVANTAGES["gae"](data["rewards"], data["values"], ones, ones, ones, gamma=0.999, lam=0.95)
    carry, after = 0.0, 0.0
    expected = np.empty(100_000)
    for t in range(100_000 - 1, -1, -1):
        carry = rewards[t] + 0.999 * after - values[t] + 0.999 * 0.95 * carry
        after = values[t]
        expected[t] = carry + values[t]
    np.testing.assert_allclose(returns.numpy(), expected, rtol=1e-9, atol=1e-9)
