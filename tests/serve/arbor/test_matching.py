"""Posted completions and what was sampled: whatever comes back, no reward goes to another sample's ids."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from recollect.serve.arbor.matching import Match, matched
from recollect.serve.arbor.payloads import PostedCompletion
from recollect.serve.arbor.sampled import SampledCompletion
from recollect.types import Completion, Message


def messages(text: str) -> tuple[Message, ...]:
    return (Message("user", text),)


def sampled(text: str, ids: tuple[int, ...], prompt: str = "q", round: int = 0, turn: int = 1) -> SampledCompletion:
    done = Completion(ids, (-1.0,) * len(ids), "stop", round, text)
    return SampledCompletion(messages(prompt), text, (1, 2), done, 1.0, round, turn)


def posted(text: str, reward: float = 1.0, prompt: str = "q") -> PostedCompletion:
    return PostedCompletion(messages(prompt), text, reward)


def found(given: list[PostedCompletion], rows: list[SampledCompletion], **more: object) -> list[Match]:
    return matched(given, list(enumerate(rows)), rollouts=100, **more)  # type: ignore[arg-type]


WORDS = ("yes", "no", " yes", "yes ", "no\n", "maybe")


def edited(rng: random.Random, text: str) -> str:
    return text + rng.choice(["!", " indeed", "?"])


@pytest.mark.parametrize("seed", range(300))
def test_no_reward_lands_on_the_ids_of_another_sample(seed: int) -> None:
    """Completions come back permuted, repeated, edited or not at all, in their own words or written anew."""
    rng = random.Random(seed)
    anew = rng.random() < 0.5
    prompts = ["q", "r"][: rng.randint(1, 2)]
    rows = [
        sampled(rng.choice(WORDS), (rng.randint(0, 3), i % 2), rng.choice(prompts)) for i in range(rng.randint(1, 9))
    ]
    rewards = [round(rng.random(), 1) for _ in rows]
    sent: list[tuple[PostedCompletion, int | None]] = []
    for i, row in enumerate(rows):
        prompt = row.messages[0].content
        fate = rng.choice(["once", "once", "lost", "twice", "edited"])
        text = edited(rng, row.text) if fate == "edited" else row.text.strip() if anew else row.text
        copies = {"lost": 0, "twice": 2}.get(fate, 1)
        sent += [(posted(text, rewards[i], prompt), None if fate == "edited" else i)] * copies
    rng.shuffle(sent)
    made = found([p for p, _ in sent], rows)
    used = Counter(m.place for m in made if m.reason == "matched")
    assert all(count == 1 for count in used.values()), "a sample is trained once"
    for (given, source), match in zip(sent, made, strict=True):
        assert (match.reason == "tokenised") == (source is None), "edited ones, and only those, were never sampled"
        if match.reason != "matched":
            continue
        row = rows[match.place]
        assert row.messages == given.messages
        assert row.text.strip() == given.text.strip()
        earned = {rewards[i] for i, r in enumerate(rows) if r.completion.ids == row.completion.ids and same(r, row)}
        told = {p.reward for p, _ in sent if p.messages == given.messages and p.text == given.text}
        assert given.reward in earned or told == {given.reward}, "all that say the same earned the same"


def same(one: SampledCompletion, other: SampledCompletion) -> bool:
    return one.messages == other.messages and one.text.strip() == other.text.strip()


@pytest.mark.parametrize("seed", range(50))
def test_everything_that_comes_back_as_it_was_said_is_matched(seed: int) -> None:
    rng = random.Random(seed)
    rows = [sampled(f"text {i}", (i,)) for i in range(8)]
    order = rng.sample(range(8), 8)
    made = found([posted(rows[i].text, float(i)) for i in order], rows)
    assert made == [Match("matched", i) for i in order]


def test_texts_that_are_written_anew_are_found() -> None:
    rows = [sampled("[[ ## answer ## ]] 7 \n\n[[ ## completed ## ]] and on", (7,)), sampled('\n{"answer": 8}', (8,))]
    given = [posted('{"answer": 8}'), posted("[[ ## answer ## ]]\n7\n\n[[ ## completed ## ]]\n")]
    assert found(given, rows) == [Match("matched", 1), Match("matched", 0)]


def test_one_text_with_different_ids() -> None:
    rows = [sampled("x", (1, 2)), sampled("x", (3,))]
    assert {m.reason for m in found([posted("x", 1.0), posted("x", 0.0)], rows)} == {"ambiguous"}
    assert {m.reason for m in found([posted("x", 1.0), posted("x", 1.0)], rows)} == {"matched"}
    equal = [sampled("x", (1,)), sampled("x", (1,))]
    assert {m.reason for m in found([posted("x", 1.0), posted("x", 0.0)], equal)} == {"matched"}


def test_an_answer_written_anew_that_may_be_either_of_two() -> None:
    rows = [sampled("x ", (1,)), sampled(" x", (2,))]
    assert found([posted("x")], rows) == [Match("ambiguous")]


def test_a_copy_is_not_trained_twice_and_conflicting_copies_not_at_all() -> None:
    rows = [sampled("x", (1,))]
    assert [m.reason for m in found([posted("x"), posted("x")], rows)] == ["matched", "repeated"]
    assert [m.reason for m in found([posted("x", 1.0), posted("x", 0.0)], rows)] == ["ambiguous", "ambiguous"]
    assert found([posted("x")], rows, spent={0}) == [Match("repeated")]


def test_the_same_words_to_another_prompt_are_another_sample() -> None:
    assert found([posted("x", prompt="r")], [sampled("x", (1,))]) == [Match("tokenised")]


def test_rollouts_go_before_validation_and_this_round_before_others() -> None:
    rows = [sampled("x", (1,), round=0), sampled("x", (2,), round=1, turn=101), sampled("x", (3,), round=1, turn=1)]
    assert found([posted("x")], rows, number=1) == [Match("matched", 2)]
    assert found([posted("x")], rows, number=1, spent={2}) == [Match("matched", 1)]
    assert found([posted("x")], rows, number=1, spent={1, 2}) == [Match("matched", 0)]
