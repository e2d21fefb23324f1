"""A sweep over the learning rate with Optuna, which ends trials that fall behind: ``on_step`` returns False.

pip install -e '.[sweep]'
python examples/optuna_sweep.py            # some minutes on a CPU
python examples/optuna_sweep.py --small    # three short trials, to see that it works
"""

import sys
from typing import Any

import optuna

import recollect

SMALL = {"data.train_batch_size": 2, "actor_rollout_ref.rollout.n": 2, "trainer.total_training_steps": 2}
SHORT = {"trainer.total_training_steps": 10, "trainer.val_before_train": False, "trainer.test_freq": -1}


def objective(trial: optuna.Trial, small: bool) -> float:
    """Train with a learning rate, and say the reward of each step."""

    def on_step(row: dict[str, Any]) -> bool:
        trial.report(row["reward/mean"], int(row["step"]))
        return not trial.should_prune()

    rate = trial.suggest_float("lr", 1e-4, 2e-3, log=True)
    result = recollect.train(
        "needle",
        settings=SHORT | (SMALL if small else {}) | {"actor_rollout_ref.actor.optim.lr": rate},
        out=f"runs/examples/sweep/{trial.number}",
        on_step=on_step,
        quiet=True,
    )
    if result.report.steps < (2 if small else 10):
        raise optuna.TrialPruned
    return float(result.report.reward["last"])


def main(small: bool) -> optuna.Study:
    """Some trials; a trial that is below the median of the others at the same step ends."""
    study = optuna.create_study(direction="maximize", pruner=optuna.pruners.MedianPruner(n_startup_trials=2))
    study.optimize(lambda trial: objective(trial, small), n_trials=3 if small else 12)
    return study


if __name__ == "__main__":
    best = main("--small" in sys.argv)
    for trial in best.trials:
        print(trial.number, trial.state.name, trial.params, trial.value)
