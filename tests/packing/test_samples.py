"""From turns to training sequences: the prefix rule."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from recollect.agents.session import Binding, Conversation, Session
from recollect.chat import Renderer
from recollect.config import Config
from recollect.packing.batch import build_batch, fidelity
from recollect.packing.samples import trajectory_samples
from recollect.types import Completion, Group, Message, Score, Task, Trajectory, Turn
from tests.standin import Standin, asks_three_times, collect, collector, crashes, second_of_three


def counted(prompt: str, number: int) -> str:
    return f"reply {number}"


async def converses(task: Task, session: Session, cfg: Config) -> str:
    talk = Conversation([Message("system", "Be brief."), Message("user", task.question)])
    for observation in ("mira holds 472.", "kolu holds 1."):
        await session.generate(talk)
        talk.add(Message("tool", observation))
    return (await session.generate(talk)).text


def test_a_conversation_is_one_sequence(renderer: Renderer) -> None:
    policy = Standin(renderer, counted)
    trajectory = collect(collector(policy, renderer, converses), n=1)[0].trajectories[0]
    assert len(trajectory.turns) == 3
    (sample,) = trajectory_samples(trajectory, 4, 2)
    assert (sample.trajectory, sample.group) == (4, 2)
    last = trajectory.turns[-1]
    assert sample.ids.tolist() == [*last.prompt_ids, *last.completion.ids]
    assert sample.ids[sample.mask].tolist() == [i for t in trajectory.turns for i in t.completion.ids]
    logprobs = [p for t in trajectory.turns for p in t.completion.logprobs]
    assert sample.logprobs[sample.mask].tolist() == pytest.approx(logprobs, rel=1e-6)
    assert not sample.logprobs[~sample.mask].any()
    assert sample.roles == [(t.role, len(t.completion.ids)) for t in trajectory.turns]
    assert all(r.keep for r in policy.requests)
    shown = renderer.tokenizer.decode(sample.ids)
    assert shown.startswith("<|system|>Be brief.<|end|><|user|>q0<|end|><|assistant|>reply 0<|end|><|tool|>mira holds")
    assert shown.endswith("<|assistant|>reply 2<|end|>")


def test_fresh_contexts_are_several_sequences(renderer: Renderer) -> None:
    trajectory = collect(collector(Standin(renderer, counted), renderer, asks_three_times), n=1)[0].trajectories[0]
    samples = trajectory_samples(trajectory, 0, 0)
    assert len(samples) == 3
    for sample, turn in zip(samples, trajectory.turns, strict=True):
        assert sample.ids.tolist() == [*turn.prompt_ids, *turn.completion.ids]
        assert sample.mask.tolist() == [False] * len(turn.prompt_ids) + [True] * len(turn.completion.ids)


async def two_roles(task: Task, session: Session, cfg: Config) -> str:
    talk = Conversation([Message("user", task.question)])
    await session.generate(talk, role="memory")
    talk.add(Message("user", "and?"))
    await session.generate(talk, role="qa")
    return (await session.generate("alone", role="qa")).text


def test_turns_of_other_policies_carry_no_loss(renderer: Renderer) -> None:
    policy, frozen = Standin(renderer, counted), Standin(renderer, lambda prompt, number: "frozen")
    made = collector(policy, renderer, two_roles)
    made.roles["qa"] = Binding(frozen, renderer, trainable=False)
    trajectory = collect(made, n=1)[0].trajectories[0]
    assert [t.trainable for t in trajectory.turns] == [True, False, False]
    assert len(policy.requests) == 1
    (sample,) = trajectory_samples(trajectory, 0, 0)  # the turn in a context of its own has nothing to train
    assert sample.ids[sample.mask].tolist() == list(trajectory.turns[0].completion.ids)
    assert len(sample.ids) == len(trajectory.turns[1].prompt_ids) + len(trajectory.turns[1].completion.ids)


def turn(prompt: Sequence[int], ids: Sequence[int], trainable: bool = True, temperature: float = 1.0) -> Turn:
    logprobs = (-0.5,) * len(ids) if trainable else ()
    return Turn("agent", tuple(prompt), Completion(tuple(ids), logprobs, "stop", 0, ""), trainable, temperature)


def test_the_prefix_rule() -> None:
    samples = lambda *turns: [s.ids.tolist() for s in trajectory_samples(Trajectory("t", 0, list(turns)), 0, 0)]
    assert samples(turn([1, 2], [3]), turn([1, 2, 3, 4], [5])) == [[1, 2, 3, 4, 5]]
    assert samples(turn([1, 2], [3]), turn([1, 2, 3], [5])) == [[1, 2, 3, 5]]
    assert samples(turn([1, 2], [3]), turn([1, 2, 9, 4], [5])) == [[1, 2, 3], [1, 2, 9, 4, 5]]
    assert samples(turn([1, 2], [3, 4]), turn([1, 2, 3], [5])) == [[1, 2, 3, 4], [1, 2, 3, 5]]
    assert samples(turn([1], [2]), turn([1, 2], [3], temperature=0.5)) == [[1, 2], [1, 2, 3]]
    assert samples(turn([1], [2], trainable=False), turn([7], [8])) == [[7, 8]]


def test_a_trained_turn_without_logprobs_is_refused() -> None:
    silent = turn([1], [2, 3], trainable=False)
    silent.trainable = True
    trajectory = Trajectory("t9", 0, [silent], score=Score(1.0))
    with pytest.raises(ValueError, match=r"role agent of t9 .*log-probabilities"):
        trajectory_samples(trajectory, 0, 0)
    with pytest.raises(ValueError, match="log-probabilities"):
        build_batch([Group(Task("t9", "q"), [trajectory])])
    (sample,) = trajectory_samples(trajectory, 0, 0, supervised=True)
    assert sample.mask.tolist() == [False, True, True]


def test_failed_trajectories_are_left_out_of_the_batch(renderer: Renderer) -> None:
    groups = collect(
        collector(Standin(renderer), renderer, second_of_three(crashes), reward=lambda answer: 1.0), tasks=2
    )
    batch, trajectories = build_batch(groups)
    assert [t.reward for t in trajectories] == [1.0] * 4
    assert [batch.groups_E[batch.trajectories_E == t].tolist()[0] for t in range(4)] == [0, 0, 1, 1]
    assert sorted(set(batch.trajectories_E.tolist())) == [0, 1, 2, 3]


def test_fidelity_counts_the_tokens_that_were_sampled_as_they_are_trained(renderer: Renderer) -> None:
    groups = collect(collector(Standin(renderer, counted), renderer, converses, reward=lambda answer: 1.0), tasks=2)
    batch, trajectories = build_batch(groups)
    version = trajectories[0].turns[0].completion.version
    assert fidelity(batch, trajectories, version) == (batch.entries, batch.entries)
    assert fidelity(batch, trajectories, version + 1) == (batch.entries, 0)
    first = np.flatnonzero(batch.masks[0])[0]
    batch.sequences[0] = batch.sequences[0].copy()
    batch.sequences[0][first] += 1
    assert fidelity(batch, trajectories, version) == (batch.entries, batch.entries - 1)
    batch.masks[0] = batch.masks[0].copy()
    batch.masks[0][first] = False  # one token fewer: nothing of that attempt can be matched
    lost = int((batch.trajectories_E == 0).sum())
    batch.trajectories_E = batch.trajectories_E[1:]
    assert fidelity(batch, trajectories, version) == (batch.entries, batch.entries + 1 - lost)


def test_fidelity_of_attempts_without_anything_to_train() -> None:
    fixed = turn([1], [2, 3], trainable=False)
    attempts = [Trajectory("t", i, turns, score=Score(1.0)) for i, turns in enumerate(([], [fixed], [turn([1], [2])]))]
    batch, trajectories = build_batch([Group(Task("t", "q"), attempts)])
    assert len(trajectories) == 3
    assert fidelity(batch, trajectories, 0) == (1, 1)
    for groups in ([], [Group(Task("t", "q"), attempts[:2])], [Group(Task("t", "q"), [Trajectory("t", 0)])]):
        batch, trajectories = build_batch(groups)
        assert fidelity(batch, trajectories, 0) == (0, 0)
