"""DSPy's optimizers, each with sizes that fit a number of attempts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy

from recollect.dspy.instruction_writer import InstructionWriter
from recollect.types import BadInput

CANDIDATES = 4  # programs that are tried side by side
DEMONSTRATIONS = 2  # at most, of each prompt
OWN_LOG = "gepa"  # the folder from which GEPA goes on


@dataclass(frozen=True)
class OptimizerRun:
    """What an optimizer is given."""

    program: Any
    train: Sequence[Any]  # examples
    val: Sequence[Any]
    prompt_lm: Any  # writes instructions
    attempts: int  # how many attempts at a task it may make
    threads: int
    seed: int
    folder: Path


def score(gold: Any, pred: Any, trace: Any = None) -> float:
    """The reward of an attempt."""
    return float(pred.reward) if pred is not None else 0.0


def score_with_feedback(gold: Any, pred: Any, trace: Any = None, pred_name: Any = None, pred_trace: Any = None) -> Any:
    """The same, with what was wrong in words."""
    return dspy.Prediction(score=score(gold, pred), feedback=pred.feedback if pred is not None else "No attempt.")


def miprov2(run: OptimizerRun) -> Any:
    """Demonstrations of successful attempts and proposed instructions, chosen together."""
    trials = max(1, (run.attempts - CANDIDATES * len(run.train)) // len(run.val) - 1)
    made = dspy.MIPROv2(
        metric=score,
        prompt_model=run.prompt_lm,
        task_model=run.program.get_lm(),
        max_bootstrapped_demos=DEMONSTRATIONS,
        max_labeled_demos=0,
        auto=None,
        num_candidates=CANDIDATES,
        num_threads=run.threads,
        max_errors=10**9,
        seed=run.seed,
    )
    given = {"trainset": list(run.train), "valset": list(run.val), "num_trials": trials, "minibatch": False}
    return made.compile(run.program, seed=run.seed, **given)


def simba(run: OptimizerRun) -> Any:
    """Rules and demonstrations from attempts at the same task that ended differently."""
    size = min(len(run.train), 8)
    last, step = (CANDIDATES + 1) * len(run.train), size * (2 * CANDIDATES + 1)
    made = dspy.SIMBA(
        metric=score_with_feedback,
        bsize=size,
        num_candidates=CANDIDATES,
        max_steps=max(1, (run.attempts - last) // step),
        max_demos=DEMONSTRATIONS,
        prompt_model=run.prompt_lm,
        num_threads=run.threads,
    )
    return made.compile(run.program, trainset=[*run.train, *run.val], seed=run.seed)


def gepa(run: OptimizerRun) -> Any:
    """Instructions that a model rewrites after reading what went wrong; it goes on from its own log."""
    made = dspy.GEPA(
        metric=score_with_feedback,
        max_metric_calls=max(run.attempts, len(run.val) + 1),
        instruction_proposer=InstructionWriter(run.prompt_lm),
        num_threads=run.threads,
        seed=run.seed,
        log_dir=str(run.folder / OWN_LOG),
        warn_on_score_mismatch=False,
    )
    return made.compile(run.program, trainset=list(run.train), valset=list(run.val))


OPTIMIZERS: dict[str, Callable[[OptimizerRun], Any]] = {"miprov2": miprov2, "simba": simba, "gepa": gepa}


def find_optimizer(name: str) -> Callable[[OptimizerRun], Any]:
    """The optimizer of a name."""
    if name not in OPTIMIZERS:
        raise BadInput(f"--optimizer {name} is unknown; known: {', '.join(OPTIMIZERS)}")
    return OPTIMIZERS[name]
