"""`recollect eval`: items are kept as they are done, failures count as 0, results are written for people too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recollect.eval.items import Item, ItemLog
from recollect.eval.output_folder import place_name
from recollect.eval.results import markdown, summary, tables
from recollect.runtime.console import Console
from recollect.samplers.checkpoint_roles import named
from recollect.types import BadInput
from recollect.workflows.eval import eval_run as command

SETTINGS = ["evaluation.lengths=[1,2]", "evaluation.tasks=[3,2]", "trainer.device=cpu"]


def item(id: str, reward: float, length: int = 4, sample: int = 0, answer: str = "a", failure: str = "") -> Item:
    return Item(id, sample, "s", length, answer, reward, {"em": reward, "f1": reward, "sub_em": reward}, failure)


def test_failures_stay_in_the_denominator() -> None:
    made = summary([[item("a", 1.0)], [item("b", 0.0, failure="timeout: late")]])
    assert (made["accuracy"]["accuracy"], made["accuracy"]["n"], made["failures"]) == (0.5, 2, 1)


def test_samples_and_lengths() -> None:
    tries = [
        [item("a", 1.0, sample=0, answer="x"), item("a", 0.0, sample=1, answer="y"), item("a", 1.0, 4, 2, "x")],
        [item("b", 0.0, 16, 0), item("b", 0.0, 16, 1), item("b", 0.0, 16, 2)],
    ]
    made = tables(tries, trained=4)
    assert made["all"]["best@3"]["accuracy"] == 0.5
    assert made["all"]["maj@3"]["accuracy"] == 0.5
    assert made["all"]["accuracy"]["accuracy"] == pytest.approx(1 / 3)
    assert [(r["chunks"], r["multiple"], r["n"]) for r in made["by_length"]] == [(4, 1, 1), (16, 4, 1)]
    text = markdown({"checkpoint": "c", "agents": {"x": made}, "length_of": "sections"})
    assert "| s | maj@3 | 0.500 |" in text
    assert "| 16 | 0.000 |" in text


def test_a_log_takes_over_whole_lines_of_the_same_evaluation(tmp_path: Path) -> None:
    file = tmp_path / "items.jsonl"
    log = ItemLog(file, "one")
    log.add(item("a", 1.0))
    log.add(item("b", 0.5))
    whole = file.read_bytes()
    file.write_bytes(whole[:-10])  # a kill in the middle of a line
    again = ItemLog(file, "one")
    assert list(again.items) == [("a", 0)]
    again.add(item("b", 0.5))
    assert file.read_bytes() == whole
    assert ItemLog(file, "another").items == {}


def counted(monkeypatch: pytest.MonkeyPatch, stop_after: int | None = None) -> list[str]:
    """The ids of attempts that are really made; optionally the program dies after some of them."""
    seen: list[str] = []
    add = ItemLog.add

    def spy(log: ItemLog, made: Item) -> None:
        add(log, made)
        seen.append(made.id)
        if len(seen) == stop_after:
            raise KeyboardInterrupt

    monkeypatch.setattr(ItemLog, "add", spy)
    return seen


def test_a_killed_evaluation_goes_on_with_what_is_missing(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tmp_path / "whole"
    command.run_evaluation(named(str(small_model), [], list(SETTINGS)), Console(True), whole)
    with monkeypatch.context() as patch:
        counted(patch, stop_after=2)
        with pytest.raises(KeyboardInterrupt):
            command.run_evaluation(named(str(small_model), [], list(SETTINGS)), Console(True), tmp_path / "cut")
    with monkeypatch.context() as patch:
        seen = counted(patch)
        command.run_evaluation(named(str(small_model), [], list(SETTINGS)), Console(True), tmp_path / "cut")
        assert len(seen) == 3
        command.run_evaluation(named(str(small_model), [], list(SETTINGS)), Console(True), tmp_path / "cut")
        assert len(seen) == 3
    load = lambda name: {k: v for k, v in json.loads((tmp_path / f"{name}.json").read_text()).items() if k != "seconds"}
    assert {**load("cut"), "plot": ""} == {**load("whole"), "plot": ""}


def test_what_has_changed_since_is_done_again(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """A row of the data by itself, all of it for another reward of the same name; the same file anew is no change."""
    data, reward = tmp_path / "data.jsonl", tmp_path / "mine.py"
    settings = [f"data.val_files=[{data}]", f"agent.reward_name=[{reward}:same*0.5,boxed_em]", "trainer.device=cpu"]
    rows = [
        {"id": i, "question": f"What does {n} hold?", "context": f"{n} holds 1.", "answer": "1"}
        for i, n in enumerate("ab")
    ]
    seen = counted(monkeypatch)

    def measure(value: float) -> float:
        data.write_text("".join(json.dumps(row) + "\n" for row in rows))
        reward.write_text(f"def same(answer, task):\n    return {value}\n")
        seen.clear()
        made = command.run_evaluation(named(str(small_model), [], list(settings)), Console(True), tmp_path / "out")
        return float(made["accuracy"]["accuracy"])

    assert (measure(1.0), len(seen)) == (0.5, 2)
    assert (measure(1.0), len(seen)) == (0.5, 0)
    rows[1]["answer"] = "2"
    assert (measure(1.0), seen) == (0.5, ["1"])
    rows[0]["context"] = "a holds 3."
    assert (measure(1.0), seen) == (0.5, ["0"])
    assert (measure(0.5), len(seen)) == (0.25, 2)


def test_an_unknown_baseline_is_refused_before_anything_runs(
    small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = counted(monkeypatch)
    with pytest.raises(BadInput, match="--baseline foo is unknown"):
        command.run_evaluation(named(str(small_model), [], list(SETTINGS)), Console(True), None, ["rag", "foo"])
    assert not seen


def test_results_of_other_tasks_have_a_name_of_their_own(small_model: Path) -> None:
    names = [place_name(named(str(small_model), [], [*SETTINGS, f"evaluation.first={n}"])) for n in (0, 50)]
    assert names == [small_model.name, f"{small_model.name}+first-50"]


def test_baselines_are_measured_on_the_same_tasks(small_model: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "results" / "e"
    settings = [*SETTINGS, "data.max_prompt_length=64", "rag.chunk_size=24"]
    made = command.run_evaluation(named(str(small_model), [], settings), Console(True), out, ["concat", "rag"])
    assert list(made["agents"]) == ["recurrent", "concat", "rag"]
    assert [r["n"] for r in made["agents"]["rag"]["by_length"]] == [3, 2]
    assert made["failures"] == 0
    assert out.with_name("e.png").stat().st_size > 5000
    assert "## concat" in out.with_name("e.md").read_text()
