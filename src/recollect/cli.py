"""The command line. Heavy imports happen inside the commands, so that --help is instant.

Exit codes: 0 done, 1 something failed part-way (said what), 2 bad input, 130 interrupted and saved.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

os.environ.setdefault("GOMP_SPINCOUNT", "0")  # threads that wait must not burn the core that works
# CPU kernels kept for shapes seen before: the 1024 of these libraries hold hundreds of MiB, and are no faster
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
os.environ.setdefault("LRU_CACHE_CAPACITY", "64")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import typer

from recollect.types import BadInput

if TYPE_CHECKING:
    from recollect.config import Config

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Train language-model agents that remember.\n\n"
    "Start with `recollect train`: it trains the embedded default on a CPU in a few minutes, with nothing to download.",
)
model_app = typer.Typer(help="Models that come with recollect.", no_args_is_help=True)
app.add_typer(model_app, name="model")

Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RECIPE] [KEY=VALUE]...",
        help="A recipe (name or YAML file), then settings such as trainer.seed=1.",
    ),
]
Settings = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings such as evaluation.tasks=[64].")
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="A YAML file of settings, in the place of a recipe.", metavar="FILE")
]
ShowConfig = Annotated[bool, typer.Option("--cfg", help="Print the resolved configuration as YAML and stop.")]
Roles = Annotated[
    list[str] | None,
    typer.Option("--role", metavar="NAME=DIR_OR_URL", help="Who plays a role, such as qa=http://localhost:8000/v1."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but the result and errors.")]


def _recipe(given: list[str] | None, file: Path | None) -> tuple[str | None, list[str]]:
    """The recipe (the first word, if it is one, or a file) and the overrides."""
    from recollect.compose import words

    settings = words(given or [])
    recipe = settings.pop(0) if settings and "=" not in settings[0] else None
    if file is not None:
        if recipe is not None:
            raise BadInput(f"the recipe {recipe} and --config {file} exclude each other")
        if not file.is_file():
            raise BadInput(f"--config {file}: there is no such file")
        recipe = str(file)
    return recipe, settings


def _configure(given: list[str] | None, file: Path | None) -> Config:
    """The configuration of a recipe and the overrides."""
    from recollect.compose import compose

    return compose(*_recipe(given, file))


def _print_config(cfg: Config) -> None:
    from recollect.compose import to_yaml

    print(to_yaml(cfg), end="")


@app.command()
def train(
    overrides: Overrides = None,
    config: ConfigFile = None,
    cfg: ShowConfig = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything and say what a step takes, without training.")
    ] = False,
    quiet: Quiet = False,
    min_reward: Annotated[
        float | None,
        typer.Option(
            "--min-reward", help="With trajectories as data.train_files: take tasks that reached this reward."
        ),
    ] = None,
) -> None:
    """Train an agent: SFT if the recipe asks for it, then RL, then an evaluation and a report.

    With no argument it trains the embedded default, recipe `needle`. A real model is the same command:

      recollect train hotpotqa_memory actor_rollout_ref.model.path=DIR data.train_files=FILE data.val_files=FILE

    A command of verl, MemAgent or AgentFly works with its own settings. Run the command again after an interruption and
    it goes on where it was.
    """
    seeded = [] if min_reward is None else [f"data.min_reward={min_reward}"]
    tree = _configure([*(overrides or []), *seeded], config)
    if cfg:
        return _print_config(tree)
    from recollect.stages.plan import has_stages

    recipe, settings = _recipe(overrides, config)
    if has_stages(recipe):
        return _stages(str(recipe), settings, dry_run, quiet)
    from recollect.console import Console

    console = Console(quiet)
    if dry_run:
        from recollect.dry_run import dry_run as look

        look(tree, console)
        return None
    from recollect.notes import notes

    for line in notes(tree):
        console.say(line)
    from recollect.eval.summary import show_report
    from recollect.train.fit import Fit

    work = Fit(tree, console)
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

      recollect stages two_stage
      recollect stages FILE.yaml --dry-run

    A recipe lists its `stages`; `recollect train` runs them too. Run the command again after an interruption and it
    goes on in the middle of the stage where it was.
    """
    recipe, settings = _recipe(overrides, config)
    _stages(recipe or "two_stage", settings, dry_run, quiet)


def _stages(recipe: str, settings: list[str], dry_run: bool, quiet: bool) -> None:
    from recollect.console import Console
    from recollect.stages.plan import read_plan
    from recollect.stages.work import run_stages, show_plan

    plan, console = read_plan(recipe, settings), Console(quiet)
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
    tool: Annotated[
        str | None, typer.Option("--tool", help="Train on this tool's part of a folder of `recollect sft-data`.")
    ] = None,
) -> None:
    """Supervised training alone: on files of conversations, a run's trajectories, or the recipe's expert.

    recollect sft data.train_files=chats.jsonl data.val_files=held_out.jsonl actor_rollout_ref.model.path=DIR
    recollect sft data.train_files=runs/recollect/needle min_reward=0.8
    recollect sft --tool reason data.train_files=data/sft
    recollect sft needle sft.steps=200
    """
    tree = _configure(overrides, config)
    if cfg:
        return _print_config(tree)
    from recollect.console import Console
    from recollect.train.sft.command import supervise

    report = supervise(tree, Console(quiet), tool)
    if quiet:
        print(json.dumps(report))
    return None


@app.command()
def pipeline(
    config: Annotated[str | None, typer.Argument(help="A YAML file; without one, the embedded example.")] = None,
    mode: Annotated[str, typer.Option(help="sft, rl or both.")] = "both",
    skip: Annotated[
        list[str] | None, typer.Option("--skip", help="Leave a stage out; `--skip-generate` is `--skip generate`.")
    ] = None,
    evaluate: Annotated[
        bool | None, typer.Option("--evaluate/--no-evaluate", help="Measure every model on held-out tasks at the end.")
    ] = None,
    out: Annotated[
        str | None, typer.Option("--out", "-o", help="The folder to write to; default: as in the file.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """The whole road: generate, convert, reward, sft-data, SFT, RL, evaluate, report. Complete stages are passed over.

    recollect pipeline
    recollect pipeline mine.yaml --mode both --evaluate
    """
    from recollect.console import Console
    from recollect.pipeline.command import run_pipeline

    report = run_pipeline(config, mode, skip or [], evaluate, out, Console(quiet))
    if quiet:
        print(json.dumps(report))


@app.command(name="eval")
def evaluate(
    given: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CHECKPOINT] [KEY=VALUE]...",
            help="A run directory, a checkpoint, a model folder, or `tiny`; then settings.",
        ),
    ] = None,
    role: Roles = None,
    model: Annotated[str | None, typer.Option("--model", "--model_path", help="The same as the first word.")] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data", "--test_data", help="A file of tasks or conversations: metrics.json in OUT, with a card."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="With --data: attempt every task so many times, each with a seed.")] = 1,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write OUT.json, OUT.md and OUT.png; default: eval/ of the run.")
    ] = None,
    baseline: Annotated[
        list[str] | None, typer.Option("--baseline", "-b", help="Another agent on the same tasks: concat or rag.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Measure success on held-out tasks, by data source and by document length: reward, EM, F1 and sub-EM.

    recollect eval runs/recollect/needle --baseline concat --baseline rag
    recollect eval DIR data.val_files=FILE --out results/dev
    recollect eval --role memory=DIR --role qa=http://localhost:8000/v1
    recollect eval --model DIR --data FILE.jsonl --seeds 3

    Run the command again after an interruption and it goes on with the items that are missing.
    """
    from recollect.compose import recipe_names
    from recollect.console import Console
    from recollect.eval.actors import named

    settings = list(given or [])
    is_named = bool(settings) and "=" not in settings[0] and not (role and settings[0] in recipe_names())
    checkpoint = model or (settings.pop(0) if is_named else None)
    if checkpoint is None and not role:
        raise BadInput("name a checkpoint, or who plays each role: --role memory=DIR --role qa=DIR_OR_URL")
    if data and checkpoint is not None:
        from recollect.eval.seeds import run_seeds

        result = run_seeds(checkpoint, data, seeds, settings, out, Console(quiet))
        return print(json.dumps(result)) if quiet else None
    from recollect.eval.command import run_evaluation

    return run_evaluation(named(checkpoint, role or [], settings), Console(quiet), out, baseline or [])


@app.command()
def ask(
    given: Annotated[
        list[str],
        typer.Argument(
            metavar="[CHECKPOINT] QUESTION [KEY=VALUE]...",
            help="A run directory, a checkpoint, a model folder, or `tiny`; the question; then settings.",
        ),
    ],
    document: Annotated[Path, typer.Option("--document", "-d", help="The text to read, of any length.")],
    role: Roles = None,
    quiet: Quiet = False,
) -> None:
    """Read a document section by section, keeping a memory, and answer one question about it.

    recollect ask runs/recollect/needle --document notes.txt "What does mira hold?"
    recollect ask --role memory=DIR --role qa=http://localhost:8000/v1 --document notes.txt "What does mira hold?"
    """
    from recollect.console import Console
    from recollect.eval.actors import named
    from recollect.eval.command import answer_question

    words = list(given)
    alone = role and (len(words) < 2 or "=" in words[1])  # the roles say who plays, so the first word is the question
    checkpoint = None if alone else words.pop(0)
    if not words:
        raise BadInput("ask what? CHECKPOINT QUESTION, or --role NAME=DIR_OR_URL … QUESTION")
    question = words.pop(0)
    answer_question(named(checkpoint, role or [], words), document, question, Console(quiet))


@app.command()
def serve(
    checkpoint: Annotated[
        str, typer.Option("--checkpoint", "-c", help="A run, a checkpoint, a model folder, or `tiny`.")
    ],
    settings: Settings = None,
    port: Annotated[int, typer.Option(help="0: any that is free.", min=0, max=65535)] = 8000,
    host: Annotated[str, typer.Option(help="Others than this machine need a key.")] = "127.0.0.1",
    max_tokens: Annotated[int, typer.Option(help="Longest completion that may be asked for.", min=1)] = 4096,
    max_body: Annotated[int, typer.Option(help="Bytes of the largest request.", min=1)] = 8 << 20,
    concurrency: Annotated[int, typer.Option(help="Completions under way at once.", min=1)] = 1024,
    child: Annotated[bool, typer.Option("--child", hidden=True)] = False,
    quiet: Quiet = False,
) -> None:
    """Serve a checkpoint to clients of the OpenAI protocol, with the engine of this process.

    recollect serve --checkpoint runs/recollect/needle --port 8000

    With the environment variable RECOLLECT_SERVE_KEY, clients must show that key.
    """
    try:
        from recollect.serve.command import serve as answer
        from recollect.serve.server import Limits
    except ImportError as error:
        raise BadInput(f"serving needs the package {error.name}: pip install 'recollect[serve]'") from None
    from recollect.console import Console

    answer(
        checkpoint, host, port, list(settings or []), Limits(max_tokens, max_body, concurrency), child, Console(quiet)
    )


@app.command()
def export(
    checkpoint: Annotated[str, typer.Argument(help="A run directory, a checkpoint, or a model folder.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="A new folder.")],
    dtype: Annotated[str, typer.Option(help="Type of the weights: float32 or bfloat16.")] = "float32",
) -> None:
    """Write a trained model as a plain Hugging Face folder; a LoRA adapter is merged into its base.

    recollect export runs/recollect/needle --out model --dtype bfloat16
    """
    from recollect.eval.actors import find_checkpoint
    from recollect.models.export import export_model

    print(export_model(find_checkpoint(checkpoint)[0], out, dtype))


@app.command()
def data(
    name: Annotated[str, typer.Argument(help="gsm8k, hotpotqa, haystack, or a made-up family such as needle, ledger.")],
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[SRC] DST [KEY=VALUE]...",
            help="The original file or a pattern (made-up tasks have none); a new .json, .jsonl or .parquet file; "
            "settings of made-up tasks.",
        ),
    ],
    documents: Annotated[
        list[int] | None, typer.Option(help="haystack: paragraphs of a document, 50 … 25600; several are possible.")
    ] = None,
    count: Annotated[int, typer.Option(help="Made-up tasks to write.")] = 1000,
    multiple: Annotated[int, typer.Option(help="Made-up: length of held-out documents, × the training length.")] = 1,
    held_out: Annotated[bool, typer.Option("--held-out", help="Made-up: names and values never trained on.")] = False,
    seed: Annotated[int, typer.Option(help="haystack: draws distractors and places.")] = 0,
    closed_book: Annotated[
        str | None, typer.Option(metavar="URL", help="haystack: drop what this endpoint answers without the document.")
    ] = None,
) -> None:
    """Write a file of tasks: from a data set in its original form, or made up.

    recollect data gsm8k test.jsonl gsm8k_test.json
    recollect data hotpotqa hotpot_dev_distractor_v1.json dev.parquet
    recollect data haystack hotpot_dev_distractor_v1.json dev.parquet --documents 50 --documents 200
    recollect data ledger train.jsonl --count 5000 data.ledger.sessions=8
    """
    from recollect.console import Console
    from recollect.data.command import DataOptions, write_data

    options = DataOptions(documents or [200], count, multiple, held_out, seed, closed_book)
    made, target = write_data(name, words, options, Console())
    print(f"wrote {made} tasks to {target}")


@app.command()
def rollout(
    domain: Annotated[str, typer.Option(help="mhqa, video, math, swe or tau.")],
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
    temperature: Annotated[float, typer.Option(help="0 always takes the most likely token.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Decides what is sampled.")] = 0,
    user: Annotated[str | None, typer.Option(help="Who plays the user of tau: as --policy; default: a script.")] = None,
    settings: Settings = None,
    quiet: Quiet = False,
) -> None:
    """Let an agent of a domain work, and write its trajectories. The same command goes on after an interruption.

    recollect rollout --domain math --question "Solve the equation 2x + 5 = 13" --out math.traj.json
    recollect rollout --domain mhqa --data tasks.jsonl --policy http://localhost:8000/v1 -n 4 --out mhqa.jsonl
    """
    from recollect.console import Console
    from recollect.trajectories.asked import Asked
    from recollect.trajectories.generate import Request, run

    asked = Asked(domain, question, context, answer, data, tasks, held_out)
    if run(Request(asked, policy, out, n, temperature, seed, user), list(settings or []), Console(quiet)):
        raise typer.Exit(1)


@app.command()
def convert(
    inputs: Annotated[
        list[str] | None, typer.Argument(metavar="INPUT...", help="Files, patterns, folders, run directories.")
    ] = None,
    domain: Annotated[
        str | None, typer.Option(help="mhqa, video, math, swe or tau; goes before the records' own.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A new .json or .jsonl file, or a folder.")] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of a unified trajectory.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that are there already.")] = False,
    quiet: Quiet = False,
) -> None:
    """Turn trajectories of other formats, and those of runs, into unified ones. What does not fit is told; exit code 1.

    recollect convert data/raw/*.json --domain mhqa --out data/unified/mhqa.jsonl
    """
    if schema:
        from recollect.trajectories.schema import SCHEMA

        return print(json.dumps(SCHEMA, indent=2))
    if not inputs or out is None:
        raise BadInput("name what to convert and --out FILE_OR_DIR")
    from recollect.console import Console
    from recollect.trajectories.convert import convert as convert_all

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
        float | None, typer.Option("--min-reward", "--min_reward", help="List only those that reach this reward.")
    ] = None,
    domain: Annotated[str | None, typer.Option(help="Score as this domain, whatever the records say.")] = None,
    weights: Annotated[str | None, typer.Option(help="A YAML file of weights.", metavar="FILE")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an analysis that is there already.")] = False,
    quiet: Quiet = False,
) -> None:
    """Score trajectories: completion, efficiency, quality and reasoning, weighted by domain.

    recollect reward "data/unified/*/*.json" --output data/rewards/analysis.json --stats
    """
    given = [*(inputs or []), *([trajectory_glob] if trajectory_glob else [])]
    if not given:
        raise BadInput("name the trajectories to score")
    from recollect.console import Console
    from recollect.trajectories.score import reward as score
    from recollect.trajectories.score import show_statistics

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
        float | None, typer.Option("--min-reward", "--min_reward", help="Only trajectories that reach this reward.")
    ] = None,
    domain: Annotated[str | None, typer.Option(help="The domain of records that name none, or another.")] = None,
    val_ratio: Annotated[float, typer.Option("--val-ratio", "--val_ratio", help="Share of tasks held out.")] = 0.05,
    seed: Annotated[int, typer.Option(help="Chooses the tasks that are held out.")] = 0,
    preview: Annotated[int, typer.Option(help="Print so many rows of each data set and write nothing.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a folder that sft-data has written.")] = False,
    quiet: Quiet = False,
) -> None:
    """Make training rows of trajectories: a data set for each tool, and one of whole conversations.

    recollect sft-data "data/unified/*/*.json" --min-reward 0.5 --out data/sft
    recollect sft data.train_files=data/sft/conversations/train.jsonl
    """
    from recollect.console import Console
    from recollect.trajectories import sft_data as rows

    given = [*(inputs or []), *([unified_glob] if unified_glob else [])]
    if not given or (out is None and not preview):
        raise BadInput("name the trajectories and --out DIR, or --preview N")
    choice = rows.Choice(templates, domain, min_reward, val_ratio, seed)
    if preview:
        return rows.preview(given, choice, preview, Console(quiet))
    assert out is not None
    if rows.sft_data(given, out, choice, Console(quiet), overwrite):
        raise typer.Exit(1)
    return None


@model_app.command()
def tiny(out: Annotated[Path, typer.Option("--out", "-o", help="A new folder.")]) -> None:
    """Write the embedded base model and tokenizer as a plain Hugging Face folder."""
    from recollect.models.tiny import save_tiny

    save_tiny(out)
    print(f"wrote the embedded model to {out}")


@app.command()
def recipes() -> None:
    """List the recipes that come with recollect."""
    from recollect.compose import read_recipe, recipe_names

    for name in recipe_names():
        print(f"{name:18} {read_recipe(name).get('description', '').strip()}")


def main() -> None:
    """Run the command line, turning errors into one line and an exit code."""
    try:
        app(_spelt_out(sys.argv[1:]), standalone_mode=False)
    except typer.Exit as stop:
        sys.exit(stop.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        _fail("interrupted; what was saved can be resumed with the same command", 130)
    except BadInput as error:
        _fail(str(error), 2)
    except Exception as error:
        _handle(error)


def _spelt_out(words: list[str]) -> list[str]:
    """A command's words with `--skip-STAGE` as `--skip STAGE`."""
    if words[:1] != ["pipeline"]:
        return words
    split = (["--skip", w.removeprefix("--skip-")] if w.startswith("--skip-") else [w] for w in words)
    return [word for pair in split for word in pair]


def _handle(error: Exception) -> None:
    import click

    if isinstance(error, click.ClickException):
        _fail(error.format_message(), 2)
    if type(error).__name__ == "Interrupted":
        _fail("interrupted and saved; the same command goes on", 130)
    if os.environ.get("RECOLLECT_DEBUG"):
        raise error
    _fail(f"{type(error).__name__}: {error} (RECOLLECT_DEBUG=1 shows where)", 1)


def _fail(message: str, code: int) -> None:
    from recollect.compose import redacted

    print(f"recollect: {redacted(' '.join(message.split()))}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
