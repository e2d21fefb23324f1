"""Commands that use a trained model: eval, ask, serve, export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from recollect.cli.app import Quiet, Roles, app
from recollect.types import BadInput


@app.command(name="eval")
def evaluate(
    given: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CHECKPOINT] [KEY=VALUE]...",
            help="A run directory, a checkpoint, a model folder, a GGUF file, `smollm2` or `tiny`; then settings.",
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
        list[str] | None, typer.Option("--baseline", "-b", help="Another agent on the same tasks: concat, rag, chat, …")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Measure success on held-out tasks, by data source and by document length: reward, EM, F1 and sub-EM.

    \b
    recollect eval runs/recollect/needle --baseline concat --baseline rag
    recollect eval DIR data.val_files=FILE --out results/dev
    recollect eval --role memory=DIR --role qa=http://localhost:8000/v1
    recollect eval --model DIR --data FILE.jsonl --seeds 3

    Run the command again after an interruption and it goes on with the items that are missing.
    """
    from recollect.cli.command_words import plain_first
    from recollect.config.compose import recipe_names
    from recollect.runtime.console import Console
    from recollect.samplers.checkpoint_roles import named

    settings = plain_first(given or [])
    is_named = bool(settings) and "=" not in settings[0] and not (role and settings[0] in recipe_names())
    checkpoint = model or (settings.pop(0) if is_named else None)
    if checkpoint is None and not role:
        raise BadInput("name a checkpoint, or who plays each role: --role memory=DIR --role qa=DIR_OR_URL")
    if data and (checkpoint is None or role or baseline):
        raise BadInput(
            "--data measures one model: name it with --model; for roles and baselines set data.val_files=FILE"
        )
    if not data and seeds != 1:
        raise BadInput(f"--seeds {seeds} goes with --data FILE")
    if data:
        assert checkpoint is not None
        from recollect.workflows.eval.seeds import run_seeds

        result = run_seeds(checkpoint, data, seeds, settings, out, Console(quiet))
        return print(json.dumps(result)) if quiet else None
    from recollect.workflows.eval.eval_run import run_evaluation

    result = run_evaluation(named(checkpoint, role or [], settings), Console(quiet), out, baseline or [])
    if quiet:
        print(json.dumps(result))
    return None


@app.command()
def compare(
    first: Annotated[str, typer.Argument(help="What `recollect eval … --out NAME` wrote: NAME or NAME.json.")],
    second: Annotated[
        str | None, typer.Argument(help="Others of the same items. Without it: lengths and agents of the first.")
    ] = None,
    metric: Annotated[
        str, typer.Option(help="reward, em, f1 or sub_em; of LoCoMo's questions locomo_f1, set_f1, …")
    ] = "reward",
    agent: Annotated[str | None, typer.Option(help="An agent of the first; default: the evaluated one.")] = None,
    other_agent: Annotated[str | None, typer.Option(help="An agent of the second, such as a baseline.")] = None,
    quiet: Quiet = False,
) -> None:
    """Differences between evaluations of the same items, with 95 % intervals of the paired bootstrap.

    \b
    recollect compare results/sft results/rl --metric f1
    recollect compare results/rl --metric f1
    """
    from recollect.runtime.console import Console
    from recollect.workflows.eval.comparison import compare as compared

    found = compared(first, second, metric, (agent, other_agent), Console(quiet))
    if quiet:
        print(json.dumps(found))


@app.command()
def ask(
    given: Annotated[
        list[str],
        typer.Argument(
            metavar="[CHECKPOINT] QUESTION [KEY=VALUE]...",
            help="A run, a checkpoint, a model, `smollm2` or `tiny`; the question; settings; in any order.",
        ),
    ],
    document: Annotated[Path, typer.Option("--document", "-d", help="The text to read, of any length.")],
    role: Roles = None,
    quiet: Quiet = False,
) -> None:
    """Read a document section by section, keeping a memory, and answer one question about it.

    \b
    recollect ask runs/recollect/needle --document notes.txt "What does mira hold?"
    recollect ask smollm2 --document notes.txt "Where was Anna born?"
    recollect ask --role memory=DIR --role qa=http://localhost:8000/v1 --document notes.txt "What does mira hold?"
    """
    from recollect.cli.command_words import ask_arguments
    from recollect.runtime.console import Console
    from recollect.samplers.checkpoint_roles import named
    from recollect.workflows.eval.eval_run import answer_question

    checkpoint, question, settings = ask_arguments(given, bool(role))
    print(answer_question(named(checkpoint, role or [], settings, reads=True), document, question, Console(quiet)))


@app.command()
def serve(
    given: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CHECKPOINT] [KEY=VALUE]...",
            help="A run, a checkpoint, a model folder, a GGUF file, `smollm2` or `tiny`; then settings.",
        ),
    ] = None,
    checkpoint: Annotated[str | None, typer.Option("--checkpoint", "-c", help="The same as the first word.")] = None,
    port: Annotated[
        int | None, typer.Option(help="0: any that is free; default 8000, with --trainable 7453.", min=0, max=65535)
    ] = None,
    host: Annotated[str, typer.Option(help="Others than this machine need a key.")] = "127.0.0.1",
    trainable: Annotated[
        bool, typer.Option("--trainable", help="DSPy and other clients of Arbor may train it.")
    ] = False,
    arbor_config: Annotated[
        Path | None, typer.Option(help="With --trainable: arbor.yaml, with GPUs and storage_path.")
    ] = None,
    jobs: Annotated[
        Path | None, typer.Option(help="With --trainable: the folder of training jobs; default runs/arbor.")
    ] = None,
    max_tokens: Annotated[int, typer.Option(help="Longest completion that may be asked for.", min=1)] = 4096,
    max_body: Annotated[int, typer.Option(help="Bytes of the largest request.", min=1)] = 8 << 20,
    concurrency: Annotated[int, typer.Option(help="Completions under way at once.", min=1)] = 1024,
    connections: Annotated[int, typer.Option(help="Connections open at once.", min=4)] = 1024,
    child: Annotated[bool, typer.Option("--child", hidden=True)] = False,
    quiet: Quiet = False,
) -> None:
    """Serve a checkpoint to clients of the OpenAI protocol, with the engine of this process.

    \b
    recollect serve runs/recollect/needle --port 8000
    recollect serve smollm2
    recollect serve tiny --trainable

    With the environment variable RECOLLECT_SERVE_KEY set, clients must send that key.
    """
    try:
        from recollect.serve.server import ServeLimits
        from recollect.serve.start import serve as answer
        from recollect.serve.start import start_trainable
    except ImportError as error:
        raise BadInput(f"serving needs the package {error.name}: pip install 'recollect-rl[serve]'") from None
    from recollect.cli.command_words import plain_first
    from recollect.runtime.console import Console

    settings = plain_first(given or [])
    if checkpoint is None and settings and "=" not in settings[0]:
        checkpoint = settings.pop(0)
    limits = ServeLimits(max_tokens, max_body, concurrency, connections)
    if trainable:
        where = host, 7453 if port is None else port
        start_trainable(checkpoint, settings, arbor_config, jobs, *where, limits, Console(quiet))
        return
    if arbor_config is not None or jobs is not None:
        raise BadInput("--arbor-config and --jobs are for --trainable; add it")
    if checkpoint is None:
        raise BadInput("serve what? recollect serve CHECKPOINT, or --checkpoint CHECKPOINT")
    answer(checkpoint, host, 8000 if port is None else port, settings, limits, child, Console(quiet))


@app.command()
def export(
    checkpoint: Annotated[str, typer.Argument(help="A run, a checkpoint, a model folder, a GGUF file or `smollm2`.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="A new folder.")],
    dtype: Annotated[str, typer.Option(help="Type of the weights: float32 or bfloat16.")] = "float32",
) -> None:
    """Write a trained model as a plain Hugging Face folder; a LoRA adapter is merged into its base.

    \b
    recollect export runs/recollect/needle --out model --dtype bfloat16
    """
    from recollect.models.checkpoints import find_checkpoint
    from recollect.models.export import export_model

    print(export_model(find_checkpoint(checkpoint)[0], out, dtype))
