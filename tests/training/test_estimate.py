"""From scores to advantages: where rewards sit, whom they are compared with, and what a divergence costs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from recollect.algos.control import KLController
from recollect.config import Algorithm
from recollect.packing.batch import Batch, build_batch
from recollect.training.rl.annotate import Annotations
from recollect.training.rl.estimate import estimate, last_tokens, token_rewards, units
from recollect.types import Completion, Group, Score, Task, Trajectory, Turn


def trajectory(score: Score, *roles: str) -> Trajectory:
    """Two sampled tokens for every role, each in a context of its own."""
    turns = [Turn(role, (1, 2, t), Completion((5, 6), (-1.0, -2.0), "stop", 0, "")) for t, role in enumerate(roles)]
    return Trajectory("t", 0, turns, score=score)


def batch_of(*groups: list[Trajectory]) -> tuple[Batch, list[Trajectory]]:
    return build_batch([Group(Task(str(i), "q"), members) for i, members in enumerate(groups)])


NO_CONTROL = KLController(0.0)


def test_a_score_sits_on_the_last_trained_token() -> None:
    batch, made = batch_of([trajectory(Score(1.0), "memory", "qa"), trajectory(Score(-2.0), "qa")])
    rewards = token_rewards(batch, batch.trajectories_E, made, by_role=False)
    assert rewards.tolist() == [0, 0, 0, 1.0, 0, -2.0]
    assert last_tokens(batch.trajectories_E).tolist() == [3, 5]


def test_a_long_trajectory_counts_once() -> None:
    """Nine turns with reward 1 and one turn with reward 0: the mean is 1/2, not 9/10."""
    batch, made = batch_of([trajectory(Score(1.0), *["agent"] * 9), trajectory(Score(0.0), "agent")])
    guess = estimate(Algorithm(norm_adv_by_std_in_grpo=False), batch, made, Annotations(), NO_CONTROL)
    assert guess.advantages.tolist() == [0.5] * 18 + [-0.5] * 2


def test_roles_are_compared_with_their_like() -> None:
    """Memory turns share one reward, answer turns have another; a role is centred within its own kind."""
    one = trajectory(Score(1.0, roles={"memory": 0.25}), "memory", "qa")
    two = trajectory(Score(0.0, roles={"memory": 0.75}), "memory", "qa")
    batch, made = batch_of([one, two])
    cfg = Algorithm(norm_adv_by_std_in_grpo=False)
    by_task = estimate(cfg, batch, made, Annotations(), NO_CONTROL)
    assert by_task.advantages.tolist() == [0.5] * 4 + [-0.5] * 4
    cfg.group_by = "role"
    by_role = estimate(cfg, batch, made, Annotations(), NO_CONTROL)
    assert by_role.advantages.tolist() == [-0.25, -0.25, 0.5, 0.5, 0.25, 0.25, -0.5, -0.5]
    ids, groups = units(batch, "role")
    assert len(set(ids.tolist())) == 4
    assert len(set(groups.tolist())) == 2


def test_a_role_that_one_trajectory_never_played_is_a_group_of_one() -> None:
    batch, made = batch_of([trajectory(Score(1.0), "memory", "qa"), trajectory(Score(0.0), "qa")])
    guess = estimate(Algorithm(group_by="role"), batch, made, Annotations(), NO_CONTROL)
    assert guess.advantages[:2].tolist() == [0.0, 0.0]
    assert guess.metrics["rollout/groups_of_one"] == 1


def test_greedy_rewards_are_the_baseline_of_remax() -> None:
    batch, made = batch_of([trajectory(Score(1.0), "a")], [trajectory(Score(1.0), "a"), trajectory(Score(0.0), "a")])
    guess = estimate(Algorithm("remax"), batch, made, Annotations(), NO_CONTROL, greedy=[Score(0.25), Score(1.0)])
    assert guess.advantages.tolist() == [0.75] * 2 + [0.0] * 2 + [-1.0] * 2


def test_a_divergence_is_taken_off_every_token_and_steers_its_weight() -> None:
    batch, made = batch_of([trajectory(Score(1.0), "a"), trajectory(Score(0.0), "a", "a")])
    cfg = Algorithm("reinforce_plus_plus", use_kl_in_reward=True, kl_penalty="kl")
    old, reference = torch.full((6,), -1.0), torch.tensor([-1.5, -1.0, -2.0, -1.0, -1.0, -1.0])
    control = KLController(0.5, "adaptive", target=0.1, horizon=100)
    guess = estimate(cfg, batch, made, Annotations(old.numpy(), reference.numpy()), control)
    raw = torch.tensor([0.75, 1.0, -0.5, 0.0, 0.0, 0.0], dtype=torch.float64)  # returns to go, less 0.5 × divergence
    assert guess.returns.tolist() == pytest.approx(raw.tolist())
    white = (raw - raw.mean()) * torch.rsqrt(raw.var() + 1e-8)
    assert guess.advantages.tolist() == pytest.approx(white.tolist(), rel=1e-5)
    divergence = ((0.5 + 0) / 2 + (1.0 + 0 + 0 + 0) / 4) / 2  # the mean of the trajectories' means
    assert guess.metrics["actor/reward_kl"] == pytest.approx(divergence)
    assert control.coef == pytest.approx(0.5 * (1 + 0.2 * 2 / 100))  # 0.25 is far above 0.1: the step is clipped


def test_a_role_is_measured_against_its_own_greedy_reward() -> None:
    batch, made = batch_of([trajectory(Score(1.0, roles={"memory": 0.5}), "memory", "qa")])
    greedy = [Score(0.25, roles={"memory": 0.1})]
    guess = estimate(Algorithm("remax", group_by="role"), batch, made, Annotations(), NO_CONTROL, greedy)
    assert guess.advantages.tolist() == pytest.approx([0.4, 0.4, 0.75, 0.75])


def questions_batch() -> tuple[Batch, list[Trajectory]]:
    """Two attempts at a task with two questions: a memory token each, then a token for each question."""
    turn = lambda role, q, at: Turn(role, (at,), Completion((at + 50,), (-0.5,), "stop", 0, ""), question=q)
    made = []
    for n, scores in enumerate([(0.5, 1.0, 0.0), (1.0, 1.0, 1.0)]):
        turns = [turn("memory", 0, 1), turn("qa", 1, 2), turn("qa", 2, 3)]
        done = Trajectory("t", n, turns)
        done.score = Score(sum(scores[1:]) / 2, questions=scores)
        made.append(done)
    return build_batch([Group(Task("t", "q"), made)])


@pytest.mark.parametrize(
    ("group_by", "groups"),
    [("task", [[0, 1, 2, 3, 4, 5]]), ("role", [[0, 3], [1, 2, 4, 5]]), ("question", [[0, 3], [1, 4], [2, 5]])],
)
def test_each_question_trains_its_own_turns(group_by: str, groups: list[list[int]]) -> None:
    batch, trajectories = questions_batch()
    units_E, groups_E = units(batch, group_by)
    assert len(set(units_E.tolist())) == 6
    rewards = token_rewards(batch, units_E, trajectories, group_by != "task")
    assert rewards.tolist() == [0.5, 1.0, 0.0, 1.0, 1.0, 1.0]
    found = [np.flatnonzero(groups_E == g).tolist() for g in dict.fromkeys(groups_E.tolist())]
    assert sorted(found) == sorted(groups)
