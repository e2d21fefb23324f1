"""`recollect compare`: paired differences with bootstrap intervals."""

from __future__ import annotations

import json
import random
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from recollect.eval.items import Item
from recollect.eval.paired import bootstrap, item_scores, paired, question_id
from tests.commands import run


def item(name: str, length: int, score: float, sample: int = 0) -> Item:
    return Item(f"{name}-{length}", sample, "squad", length, "", score, {"em": 0.0, "f1": score, "sub_em": 0.0})


def store(place: Path, agents: dict[str, list[Item]]) -> str:
    place.with_name(f"{place.name}.json").write_text(json.dumps({"agents": {agent: {} for agent in agents}}))
    folder = place.with_name(f"{place.name}.items")
    folder.mkdir()
    for agent, items in agents.items():
        lines = [{"evaluation": "x"}, *map(asdict, items)]
        (folder / f"{agent}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"id": "cut')
    return str(place)


def test_the_interval_is_that_of_the_mean_difference() -> None:
    rng = random.Random(0)
    drawn = np.array([rng.gauss(0.1, 0.5) for _ in range(400)])
    low, high = bootstrap(drawn)
    half = 1.96 * drawn.std() / 20
    assert low == pytest.approx(drawn.mean() - half, abs=0.006)
    assert high == pytest.approx(drawn.mean() + half, abs=0.006)
    assert bootstrap(drawn) == (low, high)


def test_pairing_is_tighter_than_two_intervals() -> None:
    """Items differ much from each other and little between the runs: a paired interval sees the small gain."""
    first = {i: float(i % 2) * 0.9 for i in range(200)}
    found = paired("all", first, {i: score + 0.05 * (i % 3 > 0) for i, score in first.items()})
    assert found is not None
    assert 0 < found.low < found.difference < found.high < 0.05
    assert paired("all", first, {"other": 1.0}) is None


def test_samples_of_an_item_are_averaged_and_lengths_are_taken_off_the_id() -> None:
    items = [item("q-4", 16, 1.0), item("q-4", 16, 0.0, 1)]
    assert question_id(items[0]) == "q-4"
    assert item_scores(items, "f1") == {("q-4", 16): 0.5}


def test_the_command_pairs_two_results_by_length(tmp_path: Path) -> None:
    one = store(tmp_path / "a", {"recurrent": [item(f"q{i}", n, 0.2) for i in range(20) for n in (4, 16)]})
    two = store(tmp_path / "b", {"recurrent": [item(f"q{i}", n, 0.2 + n / 100) for i in range(25) for n in (4, 16)]})
    done = run("compare", one, f"{two}.json", "--metric", "f1", "-q")
    assert done.returncode == 0, done.stderr
    rows = {row["what"]: row for row in json.loads(done.stdout)["rows"]}
    assert rows["length 4"]["difference"] == pytest.approx(0.04)
    assert rows["length 16"]["n"] == 20
    assert rows["all"]["n"] == 40
    assert "second − first" in run("compare", one, two, "--metric", "f1").stdout


def test_the_command_pairs_lengths_and_agents_of_one_result(tmp_path: Path) -> None:
    mine = [item(f"q{i}", n, 0.5 - n / 100) for i in range(20) for n in (4, 16, 64)]
    place = store(tmp_path / "a", {"recurrent": mine, "rag": [item(f"q{i}", 4, 0.1) for i in range(20)]})
    rows = {row["what"]: row for row in json.loads(run("compare", place, "-q").stdout)["rows"]}
    assert rows["length 16 − length 4"]["difference"] == pytest.approx(-0.12)
    assert rows["length 64 − length 4"]["n"] == 20
    assert rows["rag − recurrent, all"]["difference"] == pytest.approx(0.1 - 0.46)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "no results at"),
        (["a", "nowhere"], "no results at"),
        (["a", "--metric", "bleu"], "--metric bleu is unknown; known: reward, em, f1, sub_em"),
        (["a", "--agent", "rag"], "has no agent rag; it has recurrent"),
        (["a", "other"], "have no items to pair"),
        (["empty"], "holds no results of `recollect eval`"),
        (["broken"], "holds no items of an evaluation"),
        (["gone"], "no items of the agent recurrent"),
    ],
)
def test_what_cannot_be_compared_is_one_line(words: list[str], message: str, tmp_path: Path) -> None:
    store(tmp_path / "a", {"recurrent": [item("q", 4, 0.5)]})
    store(tmp_path / "other", {"recurrent": [item("p", 4, 0.5)]})
    (tmp_path / "empty.json").write_text("[]")
    store(tmp_path / "broken", {"recurrent": []})
    (tmp_path / "broken.items" / "recurrent.jsonl").write_text('{"id": 1, "wrong": 2}\n')
    store(tmp_path / "gone", {"recurrent": []})
    (tmp_path / "gone.items" / "recurrent.jsonl").unlink()
    files = 1 if len(words) == 1 or words[1].startswith("-") else 2
    given = [*(str(tmp_path / word) for word in words[:files]), *words[files:]]
    done = run("compare", *given)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_questions_of_categories_are_paired(tmp_path: Path) -> None:
    def talk(gain: float) -> Item:
        scores = [gain if i % 5 < 4 else 0.5 for i in range(40)]
        rows = [{"category": 1 + i % 5, "answer": "", "scores": {"locomo_f1": s}} for i, s in enumerate(scores)]
        return Item("conv-1", 0, "locomo", 3, "", 0.0, dict.fromkeys(("em", "f1", "sub_em"), 0.0), questions=rows)

    first, second = (store(tmp_path / n, {"conversation_qa": [talk(g)]}) for n, g in (("a", 0.25), ("b", 0.5)))
    done = run("compare", first, second, "--metric", "locomo_f1", "-q")
    assert done.returncode == 0, done.stderr
    rows = {row["what"]: row for row in json.loads(done.stdout)["rows"]}
    assert rows["1–4"]["n"] == 32
    assert rows["1–4"]["difference"] == rows["1–4"]["low"] == 0.25
    assert rows["5 adversarial"]["difference"] == 0.0
    assert rows["all"]["n"] == 40
    assert run("compare", first, second, "--metric", "set_f1").returncode == 2
