"""Short answers: lists of candidates, denials and guesses among several earn nothing; honest answers do."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest

from recollect.domains.verify import says
from recollect.rewards.filler_words import COMMON
from recollect.rewards.normalized import normalize
from recollect.rewards.sub_match import gives
from recollect.rewards.text import sub_em
from recollect.rewards.trajectory_total import RewardCalculator
from recollect.types import Task

CAPITAL = "What is the capital of France?"
RATHER = "Is the flag red rather than blue?"
OLDER = "Who is older, Tom Hanks or Meg Ryan?"
LETTERED = "What is the flag?\nA. red\nB. blue\nC. green"
LISTS = [  # question, accepted answer, and what lists the choices
    (RATHER, "red", ("red blue", "blue, red", "red and blue", "red rather than blue", "The flag is red and blue")),
    (RATHER, "blue", ("red blue", "blue / red")),
    ("red vs blue", "red", ("red blue", "red vs blue")),
    ("Red vs. blue?", "blue", ("red blue", "Red, blue")),
    ("Between red and blue, which is warmer?", "red", ("red blue", "blue & red")),
    ("Between A and B, which is first?", "A", ("A B", "(A) (B)", "A and B", "a b")),
    ("Between A and B, which is first?", "B", ("A B", "(A)(B)", "A, B", "a b")),
    ("Is it A, B or C?", "B", ("A B", "A, B, C", "A B C")),
    ("Is it red, blue or green?", "red", ("red blue", "red green", "red, green")),
    ("Is it red, blue or green?", "green", ("red green", "red blue green")),
    ("Of red, blue and green, which is warmest?", "red", ("red, blue, green", "green red")),
    ("Pick one: red, blue, green", "blue", ("red blue", "blue green")),
    ("Is the flag red/blue?", "red", ("red blue",)),
    ("What is the flag? (A) red (B) blue", "red", ("red blue", "A red B blue")),
    ("What is the flag? (A) red (B) blue", "B", ("(A) (B)", "A B", "A and B")),
    (LETTERED, "blue", ("red blue", "blue green")),
    (LETTERED, "C", ("A B C", "B C", "(A) (C)")),
    ("Is the cat bigger than the dog?", "cat", ("cat dog", "the dog, the cat")),
    ("Is the cat bigger than the dog?", "dog", ("cat dog",)),
    ("Compared to the dog, is the cat bigger?", "cat", ("cat dog",)),
    ("Is the flag red as opposed to blue?", "red", ("red blue",)),
    ("Is the flag red, not blue?", "red", ("red blue",)),
    ("Is the flag red instead of blue?", "blue", ("blue red",)),
    ("who is older cher or tom hanks", "cher", ("cher tom hanks", "tom hanks cher")),
    ("Who is older, Thomas Hanks or Margaret Ryan?", "Tom Hanks", ("Tom Hanks Margaret Ryan",)),
    (OLDER, "Tom Hanks", ("Tom Hanks / Meg Ryan", "tom hanks & meg ryan", "Meg Ryan rather than Tom Hanks")),
    (OLDER, "Tom Hanks", ("Meg Ryan, not Tom Hanks", "Tom Hanks is younger than Meg Ryan")),
    ("Is it true or false that it rains?", "true", ("true false", "false, true")),
]
HONEST = [  # question, accepted answer, and what answers it
    (RATHER, "red", ("The flag is red", "red, not blue", "It is red.")),
    ("Between A and B, which is first?", "A", ("A", "(A)", "It is A", "Answer: A")),
    ("Between A and B, which is first?", "B", ("B", "I think it is B", "b")),
    ("Between red and blue, which is warmer?", "red", ("red is warmer",)),
    ("What is the flag? (A) red (B) blue", "B", ("(B) blue", "B")),
    (LETTERED, "C", ("C. green", "The answer is C")),
    (LETTERED, "A", ("A. red", "A: red")),
    ("Is the cat bigger than the dog?", "dog", ("the dog is bigger", "the dog")),
    ("Is the flag red or blue today?", "blue", ("the flag is blue today", "the flag is blue")),
    ("who is older cher or tom hanks", "cher", ("cher is older",)),
    (OLDER, "Tom Hanks", ("Tom Hanks is older than Meg Ryan.", "Tom Hanks, not Meg Ryan", "Tom Hanks is older")),
    (OLDER, "Hanks", ("Tom Hanks",)),
    ("Which was started first, Arthur's Magazine or First for Women?", "Arthur's Magazine",
     ("Arthur's Magazine was started first.",)),
    ("Which band, Letters to Cleo or Screaming Trees, released more albums?", "Screaming Trees",
     ("Screaming Trees released more albums",)),
    ("Is it true or false that it rains?", "true", ("true, not false", "It is true")),
    ("Ruby is 6 times older than Sam. How old is Sam now?", "6", ("Sam is 6 years old",)),
    (CAPITAL, "Paris",
     ("The answer is Paris.", "Paris, France", "It was Paris, not London", "It's Paris", "No, it is Paris.",
      "Paris, not London or Rome", "Not London but Paris", "Paris (not London)", "Paris rather than London",
      "Based on the provided context, the answer is Paris.", "The capital of France is Paris, not Lyon.",
      "It is probably Paris", "most likely Paris", "**Paris**")),
    ("Is it?", "yes", ("Yes, that is correct", "yes it is")),
    ("Is it?", "no", ("no, that is incorrect", "No, it is not true.", "The correct answer is no.", "No, it is not")),
    ("What movement?", "The May Fourth Movement", ("It was the May Fourth Movement.",)),
    ("When?", "May", ("It was May", "in may")),
    ("Which film?", "Not Without My Daughter", ("The film is Not Without My Daughter",)),
    ("Which?", "wrong", ("It is wrong",)),
    ("Where?", "between Paris and London", ("It lies between Paris and London",)),
    ("How many?", "two or three", ("two or three people",)),
    ("What?", "Either/Or", ("Either/Or by Kierkegaard",)),
    ("Who?", "neither", ("neither of them",)),
    ("Which perfume?", "5", ("Chanel No. 5",)),
    ("Which country is not in the EU?", "Norway", ("Norway is not in the EU",)),
    ("Which disease may be caused by it?", "flu", ("The disease that may be caused by it is flu",)),
    ("How fast could the train go?", "60 mph", ("The train could go 60 mph",)),
    ("How many are left?", "4", ("There are 4 left, not 5",)),
]  # fmt: skip
DENIALS = [
    "Paris is wrong", "not Paris", "except Paris", "anything but Paris", "all but Paris", "Paris is incorrect",
    "Paris is false", "Paris isn't right", "Paris isn’t right", "It is never Paris", "every city except Paris",
    "other than Paris", "London, not Paris", "London rather than Paris", "Not Paris but London", "Paris? No",
    "no, not Paris", "Paris is not the capital", "It can't be Paris", "anywhere but Paris", "unlike Paris", "!= Paris",
    "it may be Paris", "might be Paris", "could be Paris", "either Paris or London", "Paris / London",
    "Paris vs London", "without Paris", "the opposite of Paris", "rule out Paris", "Paris? Wrong",
    "maybe Paris", "Paris, not correct", "Paris: Not Correct", "Paris, not the capital of France", "Paris ❌",
    "it may have been Paris", "it may well be Paris", "Far from Paris", "Paris is not in France", "instead of Paris",
]  # fmt: skip


def total(question: str, gold: str, said: str) -> float:
    made = {"question": question, "actions": [], "final_answer": said, "metadata": {"answers": [gold]}}
    return float(RewardCalculator().calculate_reward(made, "mhqa")["completion"])


def spread(cases: list[tuple[str, str, tuple[str, ...]]]) -> list[tuple[str, str, str]]:
    return [(question, gold, said) for question, gold, texts in cases for said in texts]


@pytest.mark.parametrize(("question", "gold", "said"), spread(LISTS))
def test_a_list_of_the_question_s_choices_is_no_answer(question: str, gold: str, said: str) -> None:
    asked = Task("t", question, answers=(gold,))
    assert sub_em(said, asked) == 0
    assert says(asked, said) is False
    assert total(question, gold, said) == 0
    assert sub_em(gold, asked) == 1


@pytest.mark.parametrize("said", DENIALS)
def test_what_is_denied_or_left_open_is_no_answer(said: str) -> None:
    asked = Task("t", CAPITAL, answers=("Paris",))
    assert sub_em(said, asked) == 0
    assert says(asked, said) is False
    assert total(CAPITAL, "Paris", said) == 0


@pytest.mark.parametrize(
    ("gold", "said"),
    [
        ("yes", "yes incorrect"), ("yes", "yes, wrong"), ("yes", "yes not"), ("no", "no correct"), ("no", "no yes"),
        ("March", "it may be March"), ("March", "either March or April"), ("(B)", "(A) (B)"), ("4", "5, not 4"),
    ],
)  # fmt: skip
def test_an_answer_that_takes_itself_back(gold: str, said: str) -> None:
    assert sub_em(said, Task("t", "Which is it?", answers=(gold,))) == 0


@pytest.mark.parametrize(("question", "gold", "said"), spread(HONEST))
def test_honest_answers_keep_their_reward(question: str, gold: str, said: str) -> None:
    assert sub_em(said, Task("t", question, answers=(gold,))) == 1


def test_long_questions_and_answers_take_no_time() -> None:
    start = time.process_time()
    for text in ("red, " * 20_000, "red or " * 20_000, "not " * 30_000, "than Red " * 20_000, "- " * 30_000):
        sub_em(text, Task("t", "Which?", answers=("red",)))
        sub_em("red it is", Task("t", text[:20_000], answers=("red",)))
    assert time.process_time() - start < 10


# ---- real questions ----

PHRASINGS = [
    "{}", "{}.", "The answer is {}.", "It is {}.", "Answer: {}", "Final Answer: {}", r"So it is \boxed{{{}}}.",
    "<answer>{}</answer>", "I think it is {}.", "Based on the documents, the answer is {}.", "**{}**",
    "According to the passage, it was {}.", "Therefore, the answer is: {}.", "The correct answer is {}.",
]  # fmt: skip
OFFERS = [
    "Is it {} rather than {}?", "{} vs {}", "Which is first, {} or {}?", "Between {} and {}, which is first?",
    "Was it {} instead of {}?", "Which came first: {} / {}?", "Which one is it? (A) {} (B) {}", "{} or {}?",
    "Which one is it?\nA. {}\nB. {}", "Was {} larger than {}?", "Is it {} as opposed to {}?", "Is it {}, {} or {}?",
    "Of {}, {} and {}, which is largest?", "Pick one: {}, {}, {}", "Is it {} or {} or {}?", "Is it {}, {}, or {}?",
]  # fmt: skip
JOINERS = (" ", ", ", " and ", " & ", " / ", "; ", "\n", " or ", " vs ", "/", " + ", ", or ", " | ", " - ")


def real(folder: Path) -> Iterator[tuple[str, str]]:
    """Questions of four data sets with their first accepted answers."""
    for line in (folder / "gsm8k_sample.jsonl").read_text().splitlines():
        row = json.loads(line)
        yield row["question"], row["answer"].split("####")[1].strip()
    for row in json.loads((folder / "hotpotqa_sample.json").read_text()):
        yield row["question"], row["answer"]
    for name in ("xquad_en_train.json", "nq_qed.json"):
        for page in json.loads((folder / name).read_text())["data"]:
            asked = (asked for part in page["paragraphs"] for asked in part["qas"] if asked["answers"])
            yield from ((each["question"], each["answers"][0]["text"]) for each in asked)


def test_real_answers_pass_in_every_honest_phrasing(shared_data: Path) -> None:
    for question, gold in real(shared_data):
        for phrasing in PHRASINGS:
            assert sub_em(phrasing.format(gold), Task("t", question, answers=(gold,))) == 1, (question, gold, phrasing)


def test_lists_of_real_answers_fail_however_they_are_joined(shared_data: Path) -> None:
    plain = {gold for _, gold in real(shared_data) if gold.replace(" ", "").isalnum() and len(gold.split()) <= 3}
    numbers = sorted(gold for gold in plain if gold.isdigit())
    names = sorted(gold for gold in plain if not COMMON & {*gold.lower().split()} and not gold[:1].isdigit())
    choose = random.Random(0)
    for offer in OFFERS * 12:
        count = offer.count("{}")
        picked = choose.sample(choose.choice([names, names, numbers]), count)
        if any({*normalize(a).split()} & {*normalize(b).split()} for a, b in combinations(picked, 2)):
            continue
        for gold in picked:
            asked = Task("t", offer.format(*picked), answers=(gold,))
            for joiner in JOINERS:
                for said in (joiner.join(picked), f"The answer is {joiner.join(picked[::-1])}."):
                    assert sub_em(said, asked) == 0, (asked.question, gold, said)
            assert sub_em(f"It is {gold}.", asked) == 1


def test_characters_that_nobody_sees_hide_no_choice() -> None:
    question = "Pick red, green or blue."
    assert gives("red", "red", question)
    assert not gives("red", "red, gr\u200been", question)
    assert not gives("red", "red, ｇｒｅｅｎ", question)
