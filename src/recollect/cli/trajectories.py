"""Commands over trajectories: rollout, convert, reward, sft-data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from recollect.cli.app import Quiet, SettingWords, app, finite
from recollect.types import BadInput


@app.command()
def rollout(
    domain: Annotated[str, typer.Option(help="The domain, such as math; a wrong name is answered with all of them.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="A new .json or .jsonl file, or a folder.")],
    policy: Annotated[str, typer.Option(help="A run, a model folder, http://…/v1, `tiny`, or `expert`.")] = "expert",
    question: Annotated[str | None, typer.Option(help="One question.")] = None,
    context: Annotated[
        Path | None,
        typer.Option("--context", "--video-ctx", "--video_ctx", help="Captions, passages, a repository, a database."),
    ] = None,
    answer: Annotated[str | None, typer.Option(help="The accepted answer to the question, if there is one.")] = None,
    data: Annotated[str | None, typer.Option(help="A file of tasks.")] = None,
    tasks: Annotated[int, typer.Option(help="So many made-up tasks of the domain.")] = 0,
    held_out: Annotated[bool, typer.Option("--held-out", help="Made-up tasks that training never sees.")] = False,
    n: Annotated[int, typer.Option("-n", "--n", help="Attempts at each task.")] = 1,
    temperature: Annotated[float, typer.Option(help="0 always takes the most likely token.", callback=finite)] = 1.0,
    seed: Annotated[int, typer.Option(help="Decides what is sampled.")] = 0,
    user: Annotated[
        str | None, typer.Option(help="Who plays the domain's user, if it has one: as --policy; default: a script.")
    ] = None,
    settings: SettingWords = None,
    quiet: Quiet = False,
) -> None:
    """Let an agent of a domain work, and write its trajectories. The same command goes on after an interruption.

    \b
    recollect rollout --domain math --question "Solve the equation 2x + 5 = 13" --out math.traj.json
    recollect rollout --domain mhqa --data tasks.jsonl --policy http://localhost:8000/v1 -n 4 --out mhqa.jsonl
    """
    from recollect.runtime.console import Console
    from recollect.workflows.rollout.generate import RolloutRequest, run
    from recollect.workflows.rollout.tasks import RolloutTasks

    asked = RolloutTasks(domain, question, context, answer, data, tasks, held_out)
    if run(RolloutRequest(asked, policy, out, n, temperature, seed, user), list(settings or []), Console(quiet)):
        raise typer.Exit(1)


@app.command()
def convert(
    inputs: Annotated[
        list[str] | None, typer.Argument(metavar="INPUT...", help="Files, patterns, folders, run directories.")
    ] = None,
    domain: Annotated[str | None, typer.Option(help="The domain, such as math; goes before the records' own.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A new .json or .jsonl file, or a folder.")] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of a unified trajectory.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that are there already.")] = False,
    quiet: Quiet = False,
) -> None:
    """Turn trajectories of other formats, and those of runs, into unified ones. Others are named; exit code 1.

    \b
    recollect convert data/raw/*.json --domain mhqa --out data/unified/mhqa.jsonl
    """
    if schema:
        from recollect.trajectories.schema import json_schema

        return print(json.dumps(json_schema(), indent=2))
    if not inputs or out is None:
        raise BadInput("name what to convert and --out FILE_OR_DIR")
    from recollect.runtime.console import Console
    from recollect.workflows.trajectories.convert import convert as convert_all

    if convert_all(inputs, domain, out, Console(quiet), overwrite):
        raise typer.Exit(1)
    return None


@app.command()
def reward(
    inputs: Annotated[
        list[str] | None, typer.Argument(metavar="GLOB...", help="Files, patterns, folders, run directories.")
    ] = None,
    trajectory_glob: Annotated[str | None, typer.Option("--trajectory-glob", "--trajectory_glob", hidden=True)] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A new JSON file for the analysis.")] = None,
    stats: Annotated[bool, typer.Option("--stats", help="Print the means by domain.")] = False,
    min_reward: Annotated[
        float | None,
        typer.Option(
            "--min-reward", "--min_reward", help="With --output: list only those that reach it.", callback=finite
        ),
    ] = None,
    domain: Annotated[str | None, typer.Option(help="Score as this domain, whatever the records say.")] = None,
    weights: Annotated[str | None, typer.Option(help="A YAML file of weights.", metavar="FILE")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an analysis that is there already.")] = False,
    quiet: Quiet = False,
) -> None:
    """Score trajectories: completion, efficiency, quality and reasoning, weighted by domain.

    \b
    recollect reward "data/unified/*/*.json" --output data/rewards/analysis.json --stats
    """
    given = [*(inputs or []), *([trajectory_glob] if trajectory_glob else [])]
    if not given:
        raise BadInput("name the trajectories to score")
    if min_reward is not None and output is None:
        raise BadInput(f"--min-reward {min_reward:g} chooses what --output lists: give --output FILE too")
    from recollect.runtime.console import Console
    from recollect.workflows.trajectories.score import reward as score
    from recollect.workflows.trajectories.score import show_statistics

    console = Console(quiet)
    analysis, problems = score(given, console, output, domain, weights, min_reward, overwrite)
    if stats or output is None:
        show_statistics(analysis, console)
    if problems:
        raise typer.Exit(1)


@app.command(name="sft-data")
def sft_data(
    inputs: Annotated[
        list[str] | None, typer.Argument(metavar="GLOB...", help="Files, patterns, folders, run directories.")
    ] = None,
    unified_glob: Annotated[str | None, typer.Option("--unified-glob", "--unified_glob", hidden=True)] = None,
    templates: Annotated[str | None, typer.Option(help="A YAML file of templates.", metavar="FILE")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", "--out-dir", "--out_dir", help="A new folder.")] = None,
    min_reward: Annotated[
        float | None,
        typer.Option("--min-reward", "--min_reward", help="Only trajectories that reach this reward.", callback=finite),
    ] = None,
    domain: Annotated[str | None, typer.Option(help="The domain of records that name none, or another.")] = None,
    val_ratio: Annotated[
        float, typer.Option("--val-ratio", "--val_ratio", help="Share of tasks held out.", callback=finite)
    ] = 0.05,
    seed: Annotated[int, typer.Option(help="Chooses the tasks that are held out.")] = 0,
    preview: Annotated[int, typer.Option(help="Print so many rows of each data set and write nothing.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a folder that sft-data has written.")] = False,
    quiet: Quiet = False,
) -> None:
    """Make training rows of trajectories: a data set for each tool, and one of whole conversations.

    \b
    recollect sft-data "data/unified/*/*.json" --min-reward 0.5 --out data/sft
    recollect sft data.train_files=data/sft/conversations/train.jsonl
    """
    from recollect.runtime.console import Console
    from recollect.workflows.trajectories import sft_data as rows

    given = [*(inputs or []), *([unified_glob] if unified_glob else [])]
    if preview < 0:
        raise BadInput(f"--preview {preview}: how many rows of each data set? It must be positive")
    if not given or (out is None and not preview):
        raise BadInput("name the trajectories and --out DIR, or --preview N")
    choice = rows.Choice(templates, domain, min_reward, val_ratio, seed)
    if preview:
        return rows.preview(given, choice, preview, Console(quiet))
    assert out is not None
    if rows.sft_data(given, out, choice, Console(quiet), overwrite):
        raise typer.Exit(1)
    return None
