"""LoCoMo's metric: numbers that were computed by hand from its definition, the stems, and the real file."""

from __future__ import annotations

import importlib
import json
import random
import re
import string
from pathlib import Path

import pytest

from recollect.eval.by_category import by_category
from recollect.rewards.locomo_f1 import evidence_recall, locomo_f1, refuses, set_f1
from recollect.rewards.marked import given_answer
from recollect.rewards.porter import stem

STEMS = {  # Porter's own examples, then those of the extensions
    "caresses": "caress",
    "ponies": "poni",
    "cats": "cat",
    "feed": "feed",
    "agreed": "agre",
    "plastered": "plaster",
    "bled": "bled",
    "motoring": "motor",
    "sing": "sing",
    "conflated": "conflat",
    "troubled": "troubl",
    "sized": "size",
    "hopping": "hop",
    "falling": "fall",
    "hissing": "hiss",
    "fizzed": "fizz",
    "filing": "file",
    "happy": "happi",
    "relational": "relat",
    "conditional": "condit",
    "rational": "ration",
    "digitizer": "digit",
    "hopefulness": "hope",
    "formality": "formal",
    "sensibility": "sensibl",
    "triplicate": "triplic",
    "formative": "form",
    "electrical": "electr",
    "goodness": "good",
    "revival": "reviv",
    "allowance": "allow",
    "adoption": "adopt",
    "replacement": "replac",
    "probate": "probat",
    "rate": "rate",
    "cease": "ceas",
    "controlling": "control",
    "rolled": "roll",
    "generalizations": "gener",
    "oscillators": "oscil",
    "skies": "sky",
    "dying": "die",
    "news": "news",
    "proceed": "proceed",
    "dies": "die",
    "died": "die",
    "flies": "fli",
    "spied": "spi",
    "spy": "spi",
    "enjoy": "enjoy",
    "by": "by",
    "is": "is",
    "as": "as",
    "theology": "theolog",
    "carefully": "care",
    "radically": "radic",
    "possibly": "possibl",
    "using": "use",
}


@pytest.mark.parametrize(("word", "expected"), STEMS.items())
def test_stems(word: str, expected: str) -> None:
    assert stem(word) == expected


BY_HAND = [
    # category, gold, answer, score
    (4, "Rex", "Rex", 1.0),
    (4, "Rex", "The dog is Rex.", 2 / 4),  # dog is rex | rex: 2·1 / (3 + 1)
    (4, "a blue bowl", "The blue bowls, and a bowl", 2 * 2 / (3 + 2)),  # blue bowl bowl | blue bowl
    (4, "running shoes", "he runs in a shoe", 2 * 2 / (4 + 2)),  # he run in shoe | run shoe
    (4, "1,000 dollars", "1000 dollars", 1.0),  # commas go before words are cut
    (4, "self-care", "selfcare", 1.0),  # punctuation leaves no gap
    (4, "Rex", "", 0.0),
    (4, "the", "the", 0.0),  # nothing is left to compare
    (2, "7 May 2023", "on 7 May, 2023", 2 * 3 / (4 + 3)),
    (2, "7 May 2023", "8 May 2023", 2 * 2 / 6),
    (3, "a baker; he wants to start a bakery", "baker", 1.0),
    (3, "a baker; he wants to start a bakery", "he wants to start a bakery", 0.0),  # behind the semicolon
    (1, "a bowl, a bicycle", "bicycle, bowl", 1.0),
    (1, "a bowl, a bicycle", "a bicycle", (0 + 1) / 2),
    (1, "a bowl, a red bicycle", "bowl", (1 + 0) / 2),
    (1, "a bowl, a red bicycle", "bicycles", (0 + 2 / 3) / 2),
    (1, "pottery", "pottery, camping, painting", 1.0),  # other parts cost nothing: so the definition has it
    (5, "anything", "It is not mentioned in the conversation.", 1.0),
    (5, "anything", "No information available", 1.0),
    (5, "anything", "anything", 0.0),
    (5, "anything", "I do not know", 0.0),
]


@pytest.mark.parametrize(("category", "gold", "answer", "score"), BY_HAND)
def test_by_hand(category: int, gold: str, answer: str, score: float) -> None:
    assert locomo_f1(answer, [gold], category) == pytest.approx(score)


def official(said: str, gold: str, category: int) -> float:
    """The definition again, from the description of the metric alone; NLTK's stemmer where it is installed."""
    try:
        stemmed = importlib.import_module("nltk.stem").PorterStemmer().stem
    except ImportError:
        stemmed = stem

    def words(text: str) -> list[str]:
        letters = "".join(c for c in text.replace(",", "").lower() if c not in set(string.punctuation))
        return [stemmed(word) for word in re.sub(r"\b(?:a|an|the|and)\b", " ", letters).split()]

    def f1(a: str, b: str) -> float:
        one, two = words(a), words(b)
        left, same = list(two), 0
        for word in one:
            if word in left:
                left.remove(word)
                same += 1
        if not same:
            return 0.0
        precision, recall = same / len(one), same / len(two)
        return 2 * precision * recall / (precision + recall)

    if category == 5:
        return float("no information available" in said.lower() or "not mentioned" in said.lower())
    if category == 1:
        golds = gold.split(",")
        return sum(max(f1(part, one) for part in said.split(",")) for one in golds) / len(golds)
    return f1(said, gold.split(";")[0].strip() if category == 3 else gold)


def test_it_is_what_the_definition_says(shared_data: Path) -> None:
    """On made-up texts, and where the real file is, on every gold answer and answers that are like it."""
    draw = random.Random(0)
    some = [
        "the",
        "bowl",
        "bowls",
        "and",
        "running",
        "ran",
        "7 May",
        "2023",
        "not mentioned",
        "self-care",
        "a",
        "1,000",
    ]
    golds = [
        (" ".join(draw.choices([*some, ",", ";", "!"], k=draw.randint(1, 6))), draw.randint(1, 5)) for _ in range(300)
    ]
    path = shared_data / "locomo10.json"
    if path.exists():
        golds += [(str(q.get("answer")), q["category"]) for row in json.loads(path.read_text()) for q in row["qa"]]
    for gold, category in golds:
        parts = gold.split()
        mixed = " ".join(draw.sample(parts, draw.randint(0, len(parts))) + draw.choices(some, k=draw.randint(0, 3)))
        for said in (gold, mixed, f"{mixed}, {gold}", draw.choice(golds)[0], gold.upper()):
            wanted = official(given_answer(said), gold, category)
            assert locomo_f1(said, [gold], category) == pytest.approx(wanted), (said, gold, category)


def test_the_answer_is_taken_out_of_its_marks() -> None:
    assert locomo_f1("I think so. \\boxed{7 May 2023}", ["7 May 2023"], 2) == 1.0
    assert locomo_f1("Final Answer: not mentioned", ["x"], 5) == 1.0


def test_an_unknown_category_has_no_score() -> None:
    with pytest.raises(ValueError, match="the category 7 is unknown"):
        locomo_f1("x", ["x"], 7)


def test_the_f1_of_sets_neither_stems_nor_counts() -> None:
    assert set_f1("Rex Rex!", ["rex"]) == 1.0
    assert set_f1("bowls", ["bowl"]) == 0.0
    assert set_f1("The blue bowl.", ["a blue bowl"]) == pytest.approx(2 * 2 / 6)
    assert set_f1("", ["x"]) == 0.0


def test_evidence_is_found_by_turn_or_by_session() -> None:
    assert evidence_recall(["D1:3", "D2:8"], ["D1:3", "D9:1"]) == 0.5
    assert evidence_recall(["D1:3", "D2:8", "D2:9"], ["S2"]) == pytest.approx(2 / 3)
    assert evidence_recall(["D1:3", "D11:3"], ["S1"]) == 0.5
    assert evidence_recall([], ["D1:1"]) == 1.0


def test_always_not_mentioned_scores_a_quarter_of_the_real_file(shared_data: Path) -> None:
    path = shared_data / "locomo10.json"
    if not path.exists():
        pytest.skip("no locomo10.json here")
    asked = [q for row in json.loads(path.read_text()) for q in row["qa"]]
    said = "Not mentioned"
    rows = []
    for q in asked:
        score = locomo_f1(said, [str(q.get("answer"))], q["category"])
        scores = {"locomo_f1": score, "refused": float(refuses(said))}
        rows.append({"category": q["category"], "scores": scores})
    found = by_category([rows])
    assert found["overall"]["locomo_f1"]["accuracy"] == pytest.approx(0.225, abs=0.002)
    assert found["overall"]["locomo_f1"]["n"] == 1986
    assert found["1–4"]["locomo_f1"]["n"] == 1540
    assert found["5 adversarial"]["locomo_f1"]["accuracy"] == 1.0
    assert found["overall"]["refused"]["accuracy"] == 1.0
