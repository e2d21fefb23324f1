"""The trajectory reward: its definitions, and attempts to earn it without deserving it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.registries import DOMAINS
from recollect.rewards.domain_scoring import DomainScoring
from recollect.rewards.parts import phrases_in, words_in
from recollect.rewards.trajectory_total import RewardCalculator
from recollect.rewards.weights import PARTS
from recollect.types import BadInput

CALCULATOR = RewardCalculator()
ALL_WORDS = sorted(
    {w for row in CALCULATOR.weights.indicators.values() for w in row} | set(CALCULATOR.weights.connectors)
)
TOOLS = ("reason", "decompose", "search", "bash", "python", "edit_file", "get_record", "cancel_record", "load_context")
EXPECTED = {
    "mhqa": (0.4, 0.2, 0.3, 0.1),
    "video": (0.3, 0.2, 0.4, 0.1),
    "math": (0.5, 0.1, 0.3, 0.1),
    "swe": (0.4, 0.3, 0.2, 0.1),
    "tau": (0.3, 0.2, 0.4, 0.1),
    "chess": (0.4, 0.2, 0.3, 0.1),
}


def made(answer: str | None = "Ann", success: bool | None = None, **more: Any) -> dict[str, Any]:
    row = {"task_id": "t", "domain": "mhqa", "question": "Who?", "actions": [], "final_answer": answer}
    return {**row, "success": success, "reward": None, "metadata": {}, **more}


def acts(*tools: str) -> list[dict[str, Any]]:
    return [{"step": i, "tool": t, "input": f"{t} {i}", "output": ""} for i, t in enumerate(tools, 1)]


@pytest.mark.parametrize("domain", EXPECTED)
def test_the_total_is_the_weighted_sum(domain: str) -> None:
    actions = [
        {"step": 1, "tool": "reason", "input": "first we search because it follows", "output": ""},
        {"step": 2, "tool": "search", "input": "who", "output": "Ann wrote it at 0:05 with 3 tests"},
    ]
    found = CALCULATOR.calculate_reward(made("Ann", True, actions=actions), domain)
    assert found["total"] == pytest.approx(sum(w * found[p] for w, p in zip(EXPECTED[domain], PARTS, strict=True)))
    assert set(found) == {"total", *PARTS, "conciseness", "tool_selection"}
    assert found["quality"] > 0.3
    assert found["reasoning"] > 0.3


@pytest.mark.parametrize(
    ("trajectory", "value"),
    [
        (made("Ann", True), 1),
        (made("Ann", False), 0),
        (made("Ann", None), 0.5),
        (made("", None), 0),
        (made(None, None), 0),
        (made("I don't know.", None), 0),
        (made("No idea, but therefore, because of the evidence", None), 0),
        (made("because, therefore, evidence", None), 0.5),
        (made("A", None), 0.5),
        (made("Ann", None, metadata={"answers": ["Ann"]}), 1),
        (made("Bob", True, metadata={"gold_answer": "Ann"}), 0),
        (made("Ann", False, metadata={"golden_answers": ["Ann", "A."]}), 1),
    ],
)
def test_completion(trajectory: dict[str, Any], value: float) -> None:
    assert CALCULATOR.calculate_reward(trajectory, "mhqa")["completion"] == value


@pytest.mark.parametrize(("count", "value"), [(0, 0), (1, 1), (3, 1), (4, 0.8), (5, 0.6), (7, 0.2), (8, 0), (20, 0)])
def test_efficiency(count: int, value: float) -> None:
    actions = acts("reason", *["search"] * count, "reason", "finalize")
    assert CALCULATOR.calculate_reward(made(actions=actions), "mhqa")["efficiency"] == pytest.approx(value)


def test_words_are_not_parts_of_words() -> None:
    assert phrases_in(words_in("We solve it absolutely according, to"), ["so", "solve", "according to"]) == 2
    assert phrases_in(words_in("resolved ascending"), ["solve", "so", "scene"]) == 0
    a = CALCULATOR.calculate_reward(
        made("Ann", True, actions=[{**acts("reason")[0], "input": "solve this sofa thing"}])
    )
    b = CALCULATOR.calculate_reward(made("Ann", True, actions=[{**acts("reason")[0], "input": "so this sofa thing"}]))
    assert a["reasoning"] < b["reasoning"]


words = st.lists(st.sampled_from(ALL_WORDS) | st.sampled_from(["Ann", "0:05", "12", "x"]), max_size=30).map(" ".join)
gamed = st.lists(
    st.builds(
        lambda tool, given, output: {"step": 1, "tool": tool, "input": given, "output": output},
        st.sampled_from(TOOLS),
        words,
        words,
    ),
    max_size=8,
)


@settings(max_examples=300)
@given(st.sampled_from(list(DOMAINS)), words, gamed, words, gamed, st.booleans())
def test_a_failed_check_never_beats_a_passed_one(
    domain: str, said: str, actions: list[Any], other: str, others: list[Any], by_gold: bool
) -> None:
    if by_gold and domain not in ("swe", "tau"):
        bad = made(said, None, actions=actions, metadata={"answers": ["997"]})
        good = made("997", None, actions=others, metadata={"answers": ["997"]})
    else:
        bad, good = made(said, False, actions=actions), made(other, True, actions=others)
    low, high = (CALCULATOR.calculate_reward(t, domain)["total"] for t in (bad, good))
    assert low < 0.3
    assert low < high


@pytest.mark.parametrize(
    ("domain", "answer"),
    [
        ("swe", "Fixed the bug in the function; all tests pass"),
        ("tau", "Your order has been cancelled and the refund is confirmed"),
        ("video", "First a man enters, then he cooks"),
        ("math", "The sum equals 12"),
        ("mhqa", "A"),
    ],
)
def test_words_of_the_trade_are_no_stuffing(domain: str, answer: str) -> None:
    found = CALCULATOR.calculate_reward(made(answer, None, actions=acts("bash")), domain)
    assert found["total"] == pytest.approx(sum(w * found[p] for w, p in zip(EXPECTED[domain], PARTS, strict=True)))


@pytest.mark.parametrize(
    ("trajectory", "expected"),
    [
        ({}, (0, 0)),
        ({"task": "Who?", "calls": [{"name": "search", "args": "x", "response": "Ann"}], "final": "Ann"}, (0.5, 1)),
        ({"question": "Who?", "actions": [{"tool": "search"}], "answer": "Bob", "gold_answer": "Ann"}, (0, 1)),
        ({"actions": [], "final_answer": 0, "metadata": {"gold": 0}}, (1, 0)),
        ({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a b"}]}, (0.5, 0)),
    ],
)
def test_other_forms_are_read_too(trajectory: dict[str, Any], expected: tuple[float, float]) -> None:
    found = CALCULATOR.calculate_reward(trajectory, "mhqa")
    assert (found["completion"], found["efficiency"]) == expected


@settings(max_examples=300)
@given(st.sampled_from(list(DOMAINS)), st.lists(st.sampled_from(ALL_WORDS), min_size=3, max_size=40), gamed)
def test_keywords_are_no_answer(domain: str, stuffed: list[str], actions: list[Any]) -> None:
    for answer in (" ".join(stuffed), "The " + ", ".join(stuffed) + ".", "\\boxed{" + " ".join(stuffed) + "}", None):
        if answer is not None and len({w for p in stuffed for w in p.split()}) < 3:
            continue
        found = CALCULATOR.calculate_reward(made(answer, None, actions=actions), domain)
        assert found["total"] < 0.3


class Generous(RewardCalculator):
    """What a user may write: everything is excellent."""

    def _calculate_quality_reward(self, trajectory: Any, domain: str) -> float:
        return 7.0

    def _calculate_reasoning_reward(self, trajectory: Any, domain: str) -> float:
        return 1.0


@given(st.sampled_from(list(DOMAINS)), gamed, gamed)
def test_a_subclass_keeps_the_bound(domain: str, actions: list[Any], others: list[Any]) -> None:
    mine = Generous({"weights": {domain: {"completion": 0.1, "efficiency": 0.1, "quality": 0.7, "reasoning": 0.1}}})
    bad = mine.calculate_reward(made("x", False, actions=actions), domain)
    good = mine.calculate_reward(made("x", True, actions=others), domain)
    assert bad["quality"] == 1.0
    assert bad["total"] < min(0.3, good["total"])
    assert good["total"] <= 1


@given(st.sampled_from([*DOMAINS, "chess"]), st.text(max_size=40), st.none() | st.booleans(), gamed)
def test_every_part_is_a_share(domain: str, answer: str, success: bool | None, actions: list[Any]) -> None:
    found = CALCULATOR.calculate_reward(made(answer, success, actions=actions), domain)
    assert all(0 <= value <= 1 for value in found.values())


def test_weights_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text("weights: {video: {completion: 0.7, efficiency: 0.1, quality: 0.1, reasoning: 0.1}}\n")
    mine = RewardCalculator(file)
    assert mine.weights.of("video")["completion"] == 0.7
    assert mine.weights.of("mhqa")["completion"] == 0.4
    assert mine.calculate_reward(made("x", True), "video")["total"] == pytest.approx(0.7, abs=0.11)
    for text, told in (
        ("weights: {video: {completion: 0.7}}", "add up to"),
        ("weights: {video: {luck: 0.7}}", "names completion"),
        ("weights: {video: {completion: -1, efficiency: 1, quality: 1, reasoning: 0}}", "between 0 and 1"),
        ("weights: {mhqa: {completion: 0, efficiency: 0.6, quality: 0.3, reasoning: 0.1}}", "larger than 0"),
        ("other: 1", "unknown"),
        ("a: [", "YAML"),
    ):
        file.write_text(text)
        with pytest.raises(BadInput, match=told):
            RewardCalculator(file)


def test_the_online_reward_is_the_same() -> None:
    from recollect.domains.families import FAMILIES
    from recollect.domains.registry import expert_of
    from recollect.rewards.online import as_record
    from tests.domains.playing import lines, play
    from tests.domains.playing import settings as configured

    cfg = configured("math")
    cfg.agent.reward_name = "trajectory"
    task = FAMILIES["math"].train(cfg, 0, 0)
    (good,), (bad,) = play(cfg, [task], expert_of("math")), play(cfg, [task], lines("finalize: 1"))
    for trajectory in (good, bad):
        found = CALCULATOR.calculate_reward(as_record(trajectory.answer, task, trajectory), "math")
        assert trajectory.score.total == pytest.approx(found["total"])
        assert {p: trajectory.score.parts[p] for p in PARTS} == {p: found[p] for p in PARTS}
    assert good.score.total > 0.7 > 0.3 > bad.score.total


def test_a_domain_that_is_added_is_scored_by_its_own_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    scoring = DomainScoring(
        frozenset({"move"}),
        lambda reading, spoken: [float(reading.used("move") > 0)] * 8,
        gold_decides=False,
        same=lambda answer, task: answer.lower() in task.answers,
    )
    moves = [{"step": 1, "tool": "move", "input": "e4", "output": "QH5 is mate"}]
    right = made("QH5", None, actions=moves, metadata={"answers": ["qh5", "resigns"]})
    overruled = made("QH5", False, actions=moves, metadata={"answers": ["qh5"]})
    unknown = CALCULATOR.calculate_reward(right, "chess")
    assert unknown["tool_selection"] == 0
    assert CALCULATOR.calculate_reward(overruled, "chess")["completion"] == 1
    monkeypatch.setitem(DOMAINS, "chess", replace(DOMAINS["mhqa"], name="chess", scoring=scoring))
    known = CALCULATOR.calculate_reward(right, "chess")
    assert known["tool_selection"] == 1
    assert known["quality"] > 0.85 > unknown["quality"]
    assert CALCULATOR.calculate_reward(overruled, "chess")["completion"] == 0
    wrong = made("the move is QH5", None, actions=moves, metadata={"answers": ["qh5"]})
    assert CALCULATOR.calculate_reward(wrong, "chess")["completion"] == 0
    assert CALCULATOR.calculate_reward(wrong, "mhqa")["completion"] == 1


def test_a_domain_that_says_nothing_counts_every_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DOMAINS, "chess", replace(DOMAINS["mhqa"], name="chess", scoring=DomainScoring()))
    moves = [{"step": 1, "tool": "move", "input": "e4", "output": "Ann moves"}]
    scores = CALCULATOR.calculate_reward(made("Ann", True, actions=moves), "chess")
    assert scores["tool_selection"] == 1
    assert scores["quality"] == pytest.approx(0.5)  # no indicator word, all grounded
