"""LoCoMo: train, evaluate, baselines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from recollect.cli.app import Quiet, app


@app.command()
def locomo(
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings such as trainer.seed=1 or size=cpu.")
    ] = None,
    mode: Annotated[str, typer.Option(help="train, evaluate, baselines, or judge (measure judge.url).")] = "train",
    data: Annotated[str | None, typer.Option(metavar="FILE", help="locomo10.json; default: here, or in data/.")] = None,
    num_train: Annotated[int | None, typer.Option(help="Training questions; default 600.")] = None,
    num_val: Annotated[int | None, typer.Option(help="Validation questions; default 100.")] = None,
    num_test: Annotated[int | None, typer.Option(help="Test questions; default: all of the split.")] = None,
    num_train_steps: Annotated[int | None, typer.Option(help="Steps of GRPO; default 500.", min=0)] = None,
    model: Annotated[
        str | None, typer.Option(help="The model to train or to measure; default Qwen/Qwen2.5-3B, or what was trained.")
    ] = None,
    inference_gpus: Annotated[
        str | None, typer.Option(help="GPUs that sample, such as 0, where there are several.")
    ] = None,
    training_gpus: Annotated[
        str | None, typer.Option(help="GPUs that train, such as 1,2, where there are several.")
    ] = None,
    arbor: Annotated[
        str | None, typer.Option(metavar="URL", help="Train through an Arbor server: recollect serve --trainable.")
    ] = None,
    train_categories: Annotated[
        str | None, typer.Option(help="Categories of training questions, such as 1,2,3,4; default: all.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="As of `recollect data locomo`.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder for data, run and weights.")] = Path(
        "grpo_checkpoints"
    ),
    program: Annotated[Path, typer.Option(help="The program that training writes and evaluation reads.")] = Path(
        "grpo_optimized_memory_qa.json"
    ),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check a training and say what a step takes.")] = False,
    quiet: Quiet = False,
) -> None:
    """Memory QA over LoCoMo's conversations: train with GRPO, evaluate what was trained, or measure baselines.

    \b
    recollect locomo --mode train --num-train 600 --num-val 100 --num-train-steps 500 --model Qwen/Qwen2.5-3B
    recollect locomo --mode evaluate --num-test 100
    recollect locomo --mode baselines --model smollm2 --split all
    recollect locomo --mode train size=cpu

    Training leaves a run, the LoRA adapter, merged weights and a program, which `eval`, `ask` and `serve` take.
    """
    from recollect.runtime.console import Console
    from recollect.workflows.locomo.locomo_run import run_locomo
    from recollect.workflows.locomo.plan import LocomoPlan

    numbers = num_train, num_val, num_test, num_train_steps
    words = list(settings or [])
    gpus = inference_gpus, training_gpus
    plan = LocomoPlan(mode, data, out, program, split, *numbers, model, *gpus, words, arbor, train_categories)
    found = run_locomo(plan, dry_run, Console(quiet))
    if quiet:
        print(json.dumps(found))
