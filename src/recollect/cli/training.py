"""Commands that train: train, stages, sft, pipeline."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from recollect.cli.app import (
    ConfigFile,
    Keys,
    Overrides,
    Quiet,
    ShowConfig,
    app,
    configure,
    print_config,
    recipe_and_settings,
)
from recollect.types import BadInput


@app.command()
def train(
    overrides: Overrides = None,
    config: ConfigFile = None,
    cfg: ShowConfig = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything and say what a step takes, without training.")
    ] = False,
    quiet: Quiet = False,
    keys: Keys = None,
    min_reward: Annotated[
        str | None,
        typer.Option(
            "--min-reward", "--min_reward", help="With trajectories as data: take tasks that reached this reward."
        ),
    ] = None,
) -> None:
    """Train an agent: SFT if the recipe asks for it, then RL, then an evaluation and a report.

    With no argument it trains the embedded default, recipe `needle`. A real model is the same command:

    \b
    recollect train hotpotqa_memory actor_rollout_ref.model.path=DIR data.train_files=FILE data.val_files=FILE

    A command of verl, MemAgent or AgentFly works with its own settings; so do VideoMultiAgents' rl_defaults.yaml and
    its options: --model_name, --trajectory_glob, --min_reward, --max_examples, --out_dir.
    Run the command again after an interruption and it goes on where it was.
    """
    least = [] if min_reward is None else [f"min_reward={min_reward}"]
    made = configure("train", overrides, config, [*(keys or []), *least])
    tree = made.cfg
    if cfg:
        return print_config(tree)
    from recollect.workflows.stages.stage_plan import has_stages

    if has_stages(made.recipe):
        return _stages(str(made.recipe), list(made.settings), dry_run, quiet)
    from recollect.runtime.console import Console

    console = Console(quiet)
    for line in made.said:
        console.say(line)
    if dry_run:
        from recollect.workflows.dry_run.dry_run import dry_run as look

        look(tree, console)
        return None
    from recollect.config.startup_messages import startup_messages

    for line in startup_messages(tree):
        console.say(line)
    from recollect.eval.summary import show_report
    from recollect.training.train_run import TrainRun

    work = TrainRun(tree, console)
    report = work.fit()
    show_report(report, work.run, console)
    if quiet:
        print(json.dumps(report))
    return None


@app.command()
def stages(
    overrides: Overrides = None,
    config: ConfigFile = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")] = False,
    quiet: Quiet = False,
) -> None:
    """Train several roles one after another, each against the newest weights of the others.

    \b
    recollect stages two_stage
    recollect stages FILE.yaml --dry-run

    Without a recipe it starts the training of `two_stage` at once. A recipe lists its `stages`; `recollect train` runs
    them too. Run the command again after an interruption and it goes on in the middle of the stage where it was.
    """
    recipe, settings = recipe_and_settings(overrides, config)
    _stages(recipe or "two_stage", settings, dry_run, quiet)


def _stages(recipe: str, settings: list[str], dry_run: bool, quiet: bool) -> None:
    from recollect.config.compose import composed
    from recollect.runtime.console import Console
    from recollect.workflows.stages.run_stages import run_stages, show_plan
    from recollect.workflows.stages.stage_plan import read_plan

    plan, console = read_plan(recipe, settings), Console(quiet)
    for line in composed(recipe, settings).said:
        console.say(line)
    if dry_run:
        show_plan(plan, console)
        return
    report = run_stages(plan, console)
    if quiet:
        print(json.dumps(report))


@app.command()
def sft(
    overrides: Overrides = None,
    config: ConfigFile = None,
    cfg: ShowConfig = False,
    quiet: Quiet = False,
    keys: Keys = None,
    tool: Annotated[
        str | None, typer.Option("--tool", help="Train on this tool's part of a folder of `recollect sft-data`.")
    ] = None,
) -> None:
    """Supervised training alone: on files of conversations, a run's trajectories, or the recipe's expert.

    \b
    recollect sft data.train_files=chats.jsonl data.val_files=held_out.jsonl actor_rollout_ref.model.path=DIR
    recollect sft data.train_files=runs/recollect/needle min_reward=0.8
    recollect sft --tool reason data.train_files=data/sft
    recollect sft needle sft.steps=200

    VideoMultiAgents' trl_defaults.yaml and its options work too: --model_name, --tool, --data_root, --out_dir.
    """
    made = configure("sft", overrides, config, keys, tool)
    if cfg:
        return print_config(made.cfg)
    from recollect.runtime.console import Console
    from recollect.training.sft.sft_run import supervise

    console = Console(quiet)
    for line in made.said:
        console.say(line)
    report = supervise(made.cfg, console, made.tool)
    if quiet:
        print(json.dumps(report))
    return None


@app.command()
def pipeline(
    file: Annotated[str | None, typer.Argument(help="A YAML file; without one, the embedded example.")] = None,
    config: Annotated[str | None, typer.Option("--config", metavar="FILE", help="The same as the argument.")] = None,
    mode: Annotated[str, typer.Option(help="sft, rl or both.")] = "both",
    skip: Annotated[
        list[str] | None, typer.Option("--skip", help="Leave a stage out; `--skip-generate` is `--skip generate`.")
    ] = None,
    evaluate: Annotated[
        bool | None,
        typer.Option(
            "--evaluate/--no-evaluate",
            help="Measure every model on held-out tasks at the end; default: with the example only.",
        ),
    ] = None,
    out: Annotated[
        str | None, typer.Option("--out", "-o", help="The folder to write to; default: as in the file.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Run all stages: generate, convert, reward, sft-data, SFT, RL, evaluate, report. Complete stages are skipped.

    With a file of yours, models are measured only with --evaluate. VideoMultiAgents' training_config.yaml is one.

    \b
    recollect pipeline
    recollect pipeline mine.yaml --mode both --evaluate
    """
    from recollect.runtime.console import Console
    from recollect.workflows.pipeline.command import run_pipeline

    if file is not None and config is not None:
        raise BadInput(f"the file {file} and --config {config} exclude each other")
    report = run_pipeline(file or config, mode, skip or [], evaluate, out, Console(quiet))
    if quiet:
        print(json.dumps(report))
