"""Better prompts for the same weights."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from recollect.cli.app import Overrides, Quiet, Roles, app, recipe_and_settings

FOLDER = Path("optimized")
LOCOMO = "locomo"


@app.command()
def optimize(
    given: Overrides = None,
    optimizer: Annotated[str, typer.Option(help="miprov2, simba or gepa.")] = "miprov2",
    calls: Annotated[int, typer.Option(help="Requests to models that the optimizer may make.")] = 2000,
    out: Annotated[Path, typer.Option("--out", "-o", help="A folder for prompts.json and report.json.")] = FOLDER,
    model: Annotated[
        str | None, typer.Option(help="A run, a model folder, `tiny` or an address; default: the recipe's model.")
    ] = None,
    role: Roles = None,
    prompt_model: Annotated[
        str | None, typer.Option(help="Who writes instructions: a model or an address; default: the model itself.")
    ] = None,
    num_train: Annotated[int, typer.Option(help="Training questions to learn from.")] = 16,
    num_val: Annotated[int, typer.Option(help="Further training questions to choose prompts by.")] = 16,
    data: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="locomo10.json, for `optimize locomo`; default: here, or in data/."),
    ] = None,
    phases: Annotated[
        str | None, typer.Option(help="Prompts and weights in turn, such as prompts,weights,prompts.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the optimizer.")] = 0,
    threads: Annotated[int, typer.Option(help="Attempts side by side.")] = 8,
    quiet: Quiet = False,
) -> None:
    """Optimise an agent's prompts with DSPy, and measure them on held-out tasks before and after.

    \b
    recollect optimize needle --optimizer gepa --calls 2000 --out optimized
    recollect eval tiny agent.prompts=optimized/prompts.json
    recollect optimize locomo --model smollm2 --optimizer gepa --calls 500
    recollect optimize needle --phases prompts,weights,prompts --out alternated

    Run the command again after an interruption and it goes on. Needs `pip install 'recollect-rl[dspy]'`.
    """
    os.environ.setdefault("TQDM_DISABLE", "1")  # it is read when tqdm is imported
    from recollect.config.compose import compose
    from recollect.runtime.console import Console
    from recollect.types import BadInput
    from recollect.workflows.optimize.optimize_request import OptimizeRequest, acting_models, refuse_request
    from recollect.workflows.optimize.optimize_run import optimize as optimized

    recipe, settings = recipe_and_settings(given, None)
    cfg = compose(recipe, settings)
    own_files = recipe == LOCOMO and not cfg.data.train_files
    if data is not None and not own_files:
        raise BadInput("--data goes with the recipe locomo; name other tasks with data.train_files=FILE")
    asked = OptimizeRequest(optimizer, calls, out, num_train, num_val, seed, threads, prompt_model)
    refuse_request(asked, cfg)
    if own_files:
        settings = [*_locomo_files(data, out, quiet), *settings]
        cfg = compose(recipe, settings)
    if phases is not None:
        _in_phases(phases, recipe, settings, asked, model, role, quiet)
        return
    result = optimized(acting_models(model, role or [], cfg), asked, Console(quiet))
    if quiet:
        print(json.dumps(result))


def _locomo_files(data: str | None, out: Path, quiet: bool) -> list[str]:
    """Settings that name LoCoMo's files: its training conversations, and held out those of the validation."""
    from recollect.runtime.console import Console
    from recollect.workflows.locomo.plan import LocomoPlan, task_files

    folder = task_files(LocomoPlan("train", data, out), Console(quiet).say)
    return [f"data.{part}_files=[{json.dumps(str(folder / f'{part}.jsonl'))}]" for part in ("train", "val")]


def _in_phases(
    names: str, recipe: str | None, settings: list[str], asked: Any, model: str | None, role: Any, quiet: bool
) -> None:
    """Prompts and weights in turn."""
    from recollect.config.compose import compose
    from recollect.models.checkpoints import find_checkpoint
    from recollect.runtime.address import is_address
    from recollect.runtime.console import Console
    from recollect.types import BadInput
    from recollect.workflows.optimize.phases import Phases, phase_names

    if role:
        raise BadInput("--phases trains the model that plays every role; leave --role out")
    if is_address(model or ""):
        raise BadInput(f"--phases trains the model, and {model} is an address; name a model of this machine")
    start = compose(recipe, settings)
    weights = find_checkpoint(model or start.actor_rollout_ref.model.path)[0]
    work = Phases(lambda more: compose(recipe, [*settings, *more]), asked, weights, Console(quiet))
    work.prompts = start.agent.prompts
    result = work.run(phase_names(names))
    if quiet:
        print(json.dumps(result))
