"""Every program and notebook of examples/ runs at small size."""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import inspect
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import recollect

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOK = EXAMPLES / "first_steps.ipynb"


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def program(name: str) -> ModuleType:
    """A program of the folder, imported."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["own_reward", "own_agent", "tool_agent", "memory_on_documents"])
def test_programs_train(name: str) -> None:
    result = program(name).main(small=True)
    assert result.report.steps == 2
    assert len([row for row in result.run.metrics() if "reward/mean" in row]) == 2


def test_the_part_of_the_reward_is_logged() -> None:
    module = program("own_reward")
    assert module.digits("\\boxed{123}", ["124"]) == {"reward": 2 / 3, "exact": 0.0}
    assert module.digits("", ["124"]) == {"reward": 0.0, "exact": 0.0}


def test_the_tool_computes() -> None:
    calculator = program("tool_agent").calculator
    assert [calculator(text) for text in ("12*34", "7 - 9", "1+1")] == ["408", "-2", "2"]
    with pytest.raises(ValueError, match="cannot compute"):
        calculator("1/2")


def test_two_stages() -> None:
    report = program("two_stage").main(small=True)
    assert [stage["name"] for stage in report.stages] == ["memory", "qa"]


def test_trajectories_to_rl() -> None:
    first, imitated, second = program("trajectories_to_rl").main(small=True)
    assert len(first.run.trajectories()) == 8
    assert (imitated.report.steps, second.report.steps) == (1, 1)
    assert str(imitated.run.path) in second.run.config.actor_rollout_ref.model.path


def test_a_table_and_a_plot(tmp_path: Path) -> None:
    module = program("tables")
    module.plot(module.main(small=True), tmp_path / "reward.png")
    assert (tmp_path / "reward.png").stat().st_size > 5000


def test_evaluate_and_ask(capsys: pytest.CaptureFixture[str]) -> None:
    report = program("evaluate_and_ask").main("tiny", small=True)
    assert report.accuracy["n"] == 6
    assert "answer:" in capsys.readouterr().out


class Pruned(Exception):
    """Stands in for Optuna's."""


def test_a_sweep_ends_trials_that_fall_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("optuna") is None:
        names = {"TrialPruned": Pruned, "Trial": object, "Study": object}
        monkeypatch.setitem(sys.modules, "optuna", SimpleNamespace(**names))  # type: ignore[misc]
    module = program("optuna_sweep")
    said: list[tuple[float, int]] = []
    trial = SimpleNamespace(
        number=0,
        report=lambda value, step: said.append((value, step)),
        should_prune=lambda: len(said) == 1,
        suggest_float=lambda *_, **__: 1e-3,
    )
    with pytest.raises(module.optuna.TrialPruned):
        module.objective(trial, small=True)
    assert [step for _, step in said] == [1]


@pytest.mark.skipif(importlib.util.find_spec("optuna") is None, reason="needs Optuna: make test-notebook")
def test_the_sweep_with_optuna() -> None:
    study = program("optuna_sweep").main(small=True)
    assert len(study.trials) == 3
    assert study.best_value >= 0


def cells() -> list[str]:
    """The notebook's code."""
    whole = json.loads(NOTEBOOK.read_text())
    assert (whole["nbformat"], all(cell["id"] for cell in whole["cells"])) == (4, True)
    return ["".join(cell["source"]) for cell in whole["cells"] if cell["cell_type"] == "code"]


async def run_cells(names: dict[str, Any]) -> None:
    """One cell after the other in one running event loop, as a kernel does."""
    for number, text in enumerate(cells()):
        made = eval(compile(text, f"cell {number}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        if inspect.isawaitable(made):
            await made


def test_the_notebook_runs_inside_a_loop(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import matplotlib.pyplot as plt

    monkeypatch.setenv("RECOLLECT_EXAMPLE_STEPS", "2")
    names: dict[str, Any] = {"__name__": "__main__"}
    asyncio.run(run_cells(names))
    assert plt.gca().lines[0].get_xdata().tolist() == [row["step"] for row in names["rows"]]
    plt.close("all")
    assert capsys.readouterr().out.count("memory:") >= 4


@pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("nbclient", "ipykernel")),
    reason="needs a kernel: make test-notebook",
)
def test_the_notebook_in_a_kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It shows a bar for the steps, and the plot."""
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("RECOLLECT_EXAMPLE_STEPS", "2")
    monkeypatch.setenv("PYTHONPATH", str(Path(recollect.__file__).parents[1]))
    done = nbformat.read(NOTEBOOK, 4)
    NotebookClient(done, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [out for cell in done.cells for out in cell.get("outputs", []) if out.output_type == "display_data"]
    assert any("RL step <progress" in out.data.get("text/html", "") for out in shown)
    assert any("image/png" in out.data for out in shown)
    assert not any("Warning" in out.get("text", "") for cell in done.cells for out in cell.get("outputs", []))
