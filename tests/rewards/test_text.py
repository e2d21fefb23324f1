"""Rewards that compare texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.domains.verify import says
from recollect.rewards import REWARDS
from recollect.rewards.marked import given_answer, marked
from recollect.rewards.text import boxed_em, em, f1, last_boxed, normalize, qa_em, qa_f1_reward, sub_em
from recollect.rewards.trajectory_total import RewardCalculator
from recollect.types import Task

WORDS = st.lists(st.sampled_from(["a", "The", "an", "mira", "Kolu", "yes", "no", "472", "-", "é", "!"]), max_size=6)
TEXT = st.one_of(WORDS.map(" ".join), st.text(max_size=30))
TEXTS = {name: REWARDS[name] for name in ("boxed_em", "em", "f1", "qa_em", "qa_f1_reward", "sub_em")}


def task(*answers: str) -> Task:
    return Task("t", "q", answers=answers)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Quick, brown fox!", "quick brown fox"),
        ("A man; an apple\n\tthe end", "man apple end"),
        ("theory and Atlanta", "theory and atlanta"),  # articles are whole words
        ("U.S.A.", "usa"),
        ("the", ""),
        (" ,.! ", ""),
        ("ÉCOLE", "école"),
    ],
)
def test_normalize(text: str, expected: str) -> None:
    assert normalize(text) == expected


@given(text=TEXT)
def test_normalize_does_nothing_the_second_time(text: str) -> None:
    once = normalize(text)
    assert normalize(once) == once
    assert once == " ".join(once.split())
    assert not {"a", "an", "the"} & set(once.split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\boxed{5}", "5"),
        (r"first \boxed{5}, no: \boxed{ 6 }.", "6"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{a{b{c}d}e} tail }", "a{b{c}d}e"),
        (r"\boxed{5} and \boxed{6", "5"),  # the last one whose braces close
        (r"\boxed{6", None),
        (r"\boxed{", None),
        (r"\boxed {7}", "7"),
        (r"\boxed{}", ""),
        (r"boxed{5} {5}", None),
        ("", None),
        ("\\boxed{a\nb}", "a\nb"),
    ],
)
def test_last_boxed(text: str, expected: str | None) -> None:
    assert last_boxed(text) == expected


BRACES = st.recursive(
    st.text("ab \\", max_size=4), lambda inner: st.lists(inner.map(lambda t: f"{{{t}}}"), max_size=3).map("".join)
)


@given(inside=BRACES, before=st.text("ab{}\\", max_size=8), after=st.text("ab }", max_size=8))
def test_whatever_balances_is_found_whole(inside: str, before: str, after: str) -> None:
    assert last_boxed(f"{before}\\boxed{{{inside}}}{after}") == inside.strip()


@given(text=st.text("\\boxed{} 5", max_size=40))
def test_what_is_boxed_is_balanced_text_of_the_answer(text: str) -> None:
    found = last_boxed(text)
    assert found is None or (found in text and found.count("{") == found.count("}"))


@pytest.mark.parametrize(
    ("answer", "golds", "expected"),
    [
        ("The Mira!", ["kolu", "mira"], (1, 1, 1)),
        ("it is mira", ["mira"], (0, 0.5, 1)),
        ("mirabelle", ["mira"], (0, 0, 0)),
        ("kolu", ["mira"], (0, 0, 0)),
        ("mira", ["mira kolu"], (0, 2 / 3, 0)),
        ("mira mira", ["mira kolu"], (0, 0.5, 0)),
        ("yes", ["yes"], (1, 1, 1)),
        ("yes it does", ["yes"], (0, 0, 1)),  # F1 gives nothing for a part of yes, no and noanswer
        ("no", ["yes"], (0, 0, 0)),
        ("yes", ["yes it does"], (0, 0, 0)),
        ("noanswer", ["noanswer here"], (0, 0, 0)),
        ("mira", [], (0, 0, 0)),
        ("", ["mira"], (0, 0, 0)),
        ("", [""], (0, 0, 0)),
        ("the", ["The"], (0, 0, 0)),
        ("anything", [""], (0, 0, 0)),
        ("anything", ["the"], (0, 0, 0)),
    ],
)
def test_cases(answer: str, golds: list[str], expected: tuple[float, float, float]) -> None:
    gold = task(*golds)
    assert (em(answer, gold), f1(answer, gold), sub_em(answer, gold)) == pytest.approx(expected)


def test_boxed_em_reads_the_box_alone() -> None:
    assert boxed_em(r"so \boxed{ The 472. }", task("472")) == 1
    assert boxed_em("472", task("472")) == 0
    assert boxed_em(r"472 \boxed{473}", task("472")) == 0
    assert boxed_em(r"\boxed{}", task("")) == 0


@given(answer=TEXT, golds=st.lists(TEXT, max_size=3))
def test_rewards_are_shares_and_ordered(answer: str, golds: list[str]) -> None:
    gold = task(*golds)
    scores = {name: reward(answer, gold) for name, reward in TEXTS.items()}
    assert all(isinstance(s, float) and 0 <= s <= 1 for s in scores.values())
    assert scores["em"] in (0, 1)
    assert scores["sub_em"] in (0, 1)
    assert scores["em"] <= scores["f1"] + 1e-12
    if not any(len(normalize(g)) == 1 for g in golds):  # "(A) (B)" is B for em, and two letters for sub_em
        assert scores["em"] <= scores["sub_em"]


@given(golds=st.lists(TEXT, max_size=3), answer=st.sampled_from(["", " ", "the", "\n", "!?", "A, an: the."]))
def test_an_empty_answer_is_never_rewarded(answer: str, golds: list[str]) -> None:
    gold = task(*golds, answer)
    assert [reward(answer, gold) for reward in TEXTS.values()] == [0.0] * len(TEXTS)
    assert boxed_em(rf"\boxed{{{answer}}}", gold) == 0


@given(a=TEXT, b=TEXT)
def test_f1_is_symmetric_and_one_for_the_same_words_alone(a: str, b: str) -> None:
    score = f1(a, task(b))
    assert score == f1(b, task(a))
    same = sorted(normalize(a).split()) == sorted(normalize(b).split())
    assert (score == 1.0) == (same and normalize(a) != "")


@given(answer=TEXT, golds=st.lists(TEXT, min_size=1, max_size=4))
def test_the_best_of_the_accepted_answers_counts(answer: str, golds: list[str]) -> None:
    for reward in TEXTS.values():
        assert reward(answer, task(*golds)) == max(reward(answer, task(g)) for g in golds)


# ---- marked answers, and attempts to be paid for nothing ----


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", []),
        ("<answer>a</answer> <answer> b </answer>", ["a", "b"]),
        ("Thought: x\nFinal Answer: Paris\nmore", ["Paris"]),
        ("**Final Answer:** Paris", ["Paris"]),
        ("work\n#### 72\n", ["72"]),
        (r"<answer>\boxed{5}</answer> then \boxed{6}", [r"\boxed{5}", "6"]),
        (r"\boxed{\boxed{5}}", [r"\boxed{5}"]),
        ("<answer>open", []),
        ("the final answer: is not at the start", []),
    ],
)
def test_marked(text: str, expected: list[str]) -> None:
    assert marked(text) == expected


def test_the_given_answer_is_taken_out_of_its_marks() -> None:
    assert given_answer(r"Final Answer: <answer>\boxed{5}</answer>") == "5"
    assert given_answer("just Paris") == "just Paris"
    for reward in (qa_em, qa_f1_reward, sub_em):
        assert reward("I think <answer>The Paris.</answer>", task("Paris")) == 1
        assert reward("<answer>Paris</answer> no, <answer>Rome</answer>", task("Paris")) == 0
        assert reward("<answer></answer> Paris", task("Paris")) == 0
    assert qa_f1_reward("so: <answer>yes</answer>", task("no")) == 0


@given(
    gold=st.sampled_from(["mira", "mira kolu", "yes", "no"]),
    extra=st.lists(st.sampled_from(["x1", "y2", "z3"]), min_size=1),
)
def test_more_words_never_help_f1(gold: str, extra: list[str]) -> None:
    assert qa_f1_reward(f"{gold} {' '.join(extra)}", task(gold)) < 1
    assert qa_f1_reward(" ".join([gold] * (len(extra) + 1)), task(gold)) < 1


@given(places=st.lists(st.integers(100, 999), min_size=17, max_size=60, unique=True), pick=st.integers(0, 16))
def test_listing_what_might_be_right_is_not_a_sub_match(places: list[int], pick: int) -> None:
    assert sub_em(" ".join(map(str, places)), task(str(places[pick]))) == 0
    assert sub_em(str(places[pick]), task(str(places[pick]))) == 1


def test_sub_em_reads_longer_answers_for_longer_golds() -> None:
    gold = " ".join(f"w{i}" for i in range(6))
    for words, expected in ((24 - 6, 1), (25 - 6, 0)):
        assert sub_em(f"{gold} {' '.join(['is'] * words)}", task(gold)) == expected
    for words, expected in ((6, 1), (7, 0)):
        assert sub_em(f"{gold} {' '.join(['x1'] * words)}", task(gold)) == expected


@pytest.mark.parametrize(
    ("question", "gold", "said", "expected"),
    [
        ("Who is older, Tom Hanks or Meg Ryan?", "Tom Hanks", "Tom Hanks Meg Ryan", 0),
        ("Who is older, Tom Hanks or Meg Ryan?", "Tom Hanks", "Meg Ryan is older than Tom Hanks", 0),
        ("Who is older, Tom Hanks or Meg Ryan?", "Tom Hanks", "Tom Hanks is older.", 1),
        ("Is a whale a fish or a mammal?", "mammal", "fish mammal", 0),
        ("Is a whale a fish or a mammal?", "mammal", "A whale is a mammal", 1),
        ("Which is larger, 3 or 7?", "7", "3 7", 0),
        ("Which is larger, 3 or 7?", "7", "7 is larger", 1),
        ("How many are left?", "4", " ".join(map(str, range(16))), 0),
        ("How many are left?", "4", "3 4", 0),
        ("How many are left?", "4", "There are 4 left", 1),
        ("Which letter?", "B", "A B C D", 0),
        ("Who wrote The Hobbit?", "Tolkien", "The Hobbit was written by J. R. R. Tolkien", 1),
        ("What is the capital of France?", "Paris", "Paris, London, Rome, Berlin", 0),
        ("What is the capital of France?", "Paris", "Paris or London", 0),
        ("What is the capital of France?", "Paris", "not Paris", 0),
        ("What is the capital of France?", "Paris", "The capital of France is Paris.", 1),
    ],
)
def test_sub_em_is_not_earned_by_listing_candidates(question: str, gold: str, said: str, expected: int) -> None:
    assert sub_em(said, Task("t", question, answers=(gold,))) == expected


def test_sub_em_is_not_earned_by_both_answers_or_by_the_question() -> None:
    assert sub_em("yes or no", task("yes")) == sub_em("no, yes", task("no")) == 0
    assert sub_em("no it is not", task("no")) == 1
    asked = Task("t", "Is it Paris or Rome today?", answers=("Paris",))
    assert sub_em("is it  paris or Rome today?", asked) == 0
    assert sub_em("Is it Paris or Rome today? Paris", asked) == 1


@pytest.mark.parametrize(
    "said",
    [
        "Paris London Rome", "Paris, London, Rome", "London Paris Rome", "paris london rome", "It is Paris London Rome",
        "Paris and London and Rome", "the answer is Paris, London and Rome", "paris in london in rome",
        "Paris. It is London. It is Rome.", "Paris\nLondon\nRome", "Paris | London | Rome", "Paris; Tom Hanks",
    ],
)  # fmt: skip
@pytest.mark.parametrize("question", ["Where was she born?", "What is the capital of France?", ""])
def test_three_guesses_are_no_answer(question: str, said: str) -> None:
    asked = Task("t", question, answers=("Paris",))
    assert sub_em(said, asked) == 0
    assert says(asked, said) is False
    made = {"question": question, "actions": [], "final_answer": said, "metadata": {"answers": ["Paris"]}}
    assert RewardCalculator().calculate_reward(made, "mhqa")["completion"] == 0
    assert sub_em("Cher, Tom Hanks, Madonna", Task("t", question, answers=("Tom Hanks",))) == 0


@pytest.mark.parametrize(
    "said",
    [
        "Paris", "in Paris", "It is Paris", "Paris, France", "the answer is Paris", "She was born in Paris.",
        "paris, france",
        "It was Paris, in France", "located in central Paris", "Paris (city)", "I think it is Paris", "PARIS",
        "Answer: Paris",
    ],
)  # fmt: skip
def test_short_answers_stay_answers(said: str) -> None:
    asked = Task("t", "Where was she born?", answers=("Paris",))
    assert sub_em(said, asked) == 1
    assert says(asked, said) is True


def test_places_and_titles_beside_longer_golds() -> None:
    for gold, said in (
        ("Springfield, Illinois", "Springfield, Illinois, United States"),
        ("New York", "New York, New York, USA"),
        ("Henry VIII", "King Henry VIII of England"),
        ("Barack Obama", "former president Barack Obama"),
    ):
        assert sub_em(said, task(gold)) == 1
