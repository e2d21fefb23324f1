"""Every estimator on the default task, from the same start: held-out success before and after, and what it took.

    python benchmarks/estimators.py                     # gae grpo rloo reinforce_plus_plus remax
    python benchmarks/estimators.py opo gpg --seed 1 --markdown table.md

Each run is the recipe `needle` with another `algorithm.adv_estimator`, and a critic for gae. Success is measured on 256
documents of names and values that never occur in training.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from recollect.config.compose import compose
from recollect.eval.accuracy import wilson
from recollect.runtime.console import Console
from recollect.training.train_run import TrainRun

ESTIMATORS = ["gae", "grpo", "rloo", "reinforce_plus_plus", "remax"]
SETTINGS: dict[str, list[str]] = {  # what an estimator needs beside its name
    "gae": ["critic.optim.lr=6e-4", "critic.optim.weight_decay=0.0", "critic.optim.lr_warmup_steps=2"],
}
TASKS = 256


def run(name: str, seed: int, folder: Path, more: list[str]) -> dict[str, Any]:
    """One whole run; returns its report."""
    words = [
        f"algorithm.adv_estimator={name}",
        f"trainer.seed={seed}",
        f"trainer.default_local_dir={folder / name}",
        "evaluation.lengths=[1]",
        f"evaluation.tasks=[{TASKS}]",
        "trainer.save_freq=0",
        *SETTINGS.get(name, []),
        *more,
    ]
    return TrainRun(compose("needle", words), Console(quiet=True)).fit()


def row(name: str, report: dict[str, Any], seconds: float) -> str:
    """One line of the table."""
    after = report["held_out"]["rl"]
    low, high = wilson(round(after * TASKS), TASKS)
    took = report["seconds"]
    return (
        f"| `{name}` | {report['held_out']['base']:.3f} | {after:.3f} ({low:.3f}–{high:.3f}) | {report['steps']} "
        f"| {took['rollout']:.0f} | {took['update']:.0f} | {seconds:.0f} |"
    )


def main() -> None:
    """Run the estimators one after another and print a table as each is done."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="estimators (default: all five), and key=value of the recipe")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--markdown", type=Path, help="also write the table here")
    args = parser.parse_args()
    names = [w for w in args.words if "=" not in w] or ESTIMATORS
    more = [w for w in args.words if "=" in w]
    lines = [
        "| estimator | success before | after (95 %) | steps | rollout s | update s | whole s |",
        "|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    with tempfile.TemporaryDirectory(prefix="recollect-estimators-") as folder:
        for name in names:
            start = time.monotonic()
            lines.append(row(name, run(name, args.seed, Path(folder), more), time.monotonic() - start))
            print(lines[-1], flush=True)
    if args.markdown:
        args.markdown.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
