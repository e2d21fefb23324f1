"""Steps that sample ahead (`trainer.max_staleness`) beside synchronous ones: seconds of a step, success at equal steps.

python benchmarks/sampling_ahead.py needle              # two ranks learn, the engine of the driver samples
python benchmarks/sampling_ahead.py arithmetic          # the same with a calculator that takes 0.2 s
python benchmarks/sampling_ahead.py needle --ranks 1    # one process, where sampling and updates take turns
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

from recollect.config.compose import compose
from recollect.eval.accuracy import wilson
from recollect.runs.directory import RunDirectory
from recollect.runtime.console import Console
from recollect.tools import tool
from recollect.tools.calculator import calculate
from recollect.training.train_run import TrainRun

TASKS = 256
FIRST = 4  # step from which seconds count: before it batches are ahead that were not waited for
WAITS_S = 0.2
COLUMNS = "step s", "rollout s", "waited for it s", "update s", "success (95 %)", "last reward", "fidelity"


@tool(timeout=10.0)
async def calculator(expression: str) -> str:
    """Compute an arithmetic expression exactly, or solve an equation in one unknown.

    Args:
        expression: For example (3 + 4) * 12 / 5, 2^10, sqrt(2), 15% * 80, gcd(12, 18), or solve(2*x + 3 = 7).
    """
    await asyncio.sleep(WAITS_S)
    try:
        return calculate(expression)
    except ValueError as error:
        return f"Error: {error}"


def settings(recipe: str, folder: Path) -> list[str]:
    """What all runs of a recipe have in common; that of the model from nothing imitates once, in one process."""
    common = ["trainer.device=cpu", "trainer.save_freq=0", "trainer.val_before_train=False"]
    common += [f"data.val_max_samples={TASKS}", "evaluation.lengths=[1]", f"evaluation.tasks=[{TASKS}]"]
    if recipe != "arithmetic":
        return common
    taught = [*common, "trainer.total_training_steps=0", "trainer.test_freq=-1"]
    TrainRun(compose(recipe, [*taught, f"trainer.default_local_dir={folder / 'taught'}"]), Console(quiet=True)).fit()
    model = folder / "taught" / "checkpoints" / "step-0"
    tools = [f"agent.tools=[{Path(__file__).resolve()}:calculator]"]
    return [*common, f"actor_rollout_ref.model.path={model}", "sft.steps=0", *tools]


def row(recipe: str, ahead: int, ranks: int, words: list[str], folder: Path) -> str:
    """One run as a line of the table."""
    more = [f"trainer.max_staleness={ahead}", f"trainer.n_gpus_per_node={ranks}"]
    report = TrainRun(
        compose(recipe, [*words, *more, f"trainer.default_local_dir={folder}"]), Console(quiet=True)
    ).fit()
    rows = [r for r in RunDirectory(folder).metrics() if "time/total" in r and r["step"] >= FIRST]
    of: Any = lambda name: mean(r.get(name, r["time/rollout"]) for r in rows)
    success = report["held_out"]["rl"]
    low, high = wilson(round(success * TASKS), TASKS)
    times = [of(f"time/{name}") for name in ("total", "rollout", "wait_for_rollout", "update")]
    return (
        f"| {ahead} | {' | '.join(f'{t:.2f}' for t in times)} | {success:.3f} ({low:.3f}–{high:.3f}) "
        f"| {report['reward']['last']:.3f} | {report['fidelity']:.4g} |"
    )


def main() -> None:
    """Run one after another and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipe", choices=["needle", "arithmetic"])
    parser.add_argument("words", nargs="*", help="key=value of the recipe")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--ahead", type=int, nargs="+", default=[0, 1, 2])
    args = parser.parse_args()
    print(
        "| max_staleness | step s | rollout s | waited for it s | update s | success (95 %) | last reward | fidelity |"
    )
    print("|---|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="recollect-ahead-") as folder:
        words = [*settings(args.recipe, Path(folder)), *args.words]
        for ahead in args.ahead:
            print(row(args.recipe, ahead, args.ranks, words, Path(folder) / str(ahead)), flush=True)


if __name__ == "__main__":
    main()
