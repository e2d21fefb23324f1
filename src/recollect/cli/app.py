"""The application and what its commands share. Heavy imports happen inside the commands, so --help is instant."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    help="Train language-model agents that remember and use tools.\n\n"
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
SettingWords = Annotated[
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
Keys = Annotated[list[str] | None, typer.Option("--key", hidden=True)]  # NAME=VALUE of a key of TRL's
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but the result and errors.")]


def finite(option: typer.CallbackParam, value: float | None) -> float | None:
    """The value of a numeric option; infinity and nan are refused."""
    if value is not None and not math.isfinite(value):
        raise BadInput(f"{option.opts[0]} {value} must be a finite number")
    return value


def recipe_and_settings(given: list[str] | None, file: Path | None) -> tuple[str | None, list[str]]:
    """The recipe (the first word, if it is one, or a file) and the overrides."""
    from recollect.config.compose import words

    settings = words(given or [])
    recipe = settings.pop(0) if settings and "=" not in settings[0] else None
    if file is not None:
        if recipe is not None:
            raise BadInput(f"the recipe {recipe} and --config {file} exclude each other")
        if not file.is_file():
            raise BadInput(f"--config {file}: there is no such file")
        recipe = str(file)
    return recipe, settings


@dataclass(frozen=True)
class Configured:
    """What a command line asks for."""

    cfg: Config
    recipe: str | None
    settings: tuple[str, ...]  # overrides, those that options stand for included
    said: tuple[str, ...] = ()  # to say at the start
    tool: str | None = None  # of `recollect sft`, where the data of it is still to be found


def configure(
    command: str, given: list[str] | None, file: Path | None, keys: list[str] | None, tool: str | None = None
) -> Configured:
    """The configuration of a recipe, or of a file with TRL's keys, with options of such keys and overrides."""
    from recollect.config.compose import composed, read_recipe
    from recollect.config.translate.trl.read import is_trl, options_alone, translate

    recipe, settings = recipe_and_settings(given, file)
    options: dict[str, str] = dict(_pair(key) for key in keys or [])
    named = options if tool is None else {**options, "tool": tool}
    if recipe is not None and Path(recipe).is_file() and is_trl(tree := read_recipe(recipe)):
        made = translate(command, tree, recipe, named)
        found = "data.train_files" in made.settings
        whole = composed(None, settings, base=made.settings, where=recipe)
        return Configured(whole.cfg, recipe, tuple(settings), (*made.notes, *whole.said), None if found else tool)
    more = options_alone(command, named if "data_root" in options or "out_dir" in options else options)
    settings = [*(f"{key}={json.dumps(value)}" for key, value in more.items()), *settings]
    whole, left = composed(recipe, settings), None if "data_root" in options else tool
    return Configured(whole.cfg, recipe, tuple(settings), tuple(whole.said), left)


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def print_config(cfg: Config) -> None:
    from recollect.config.compose import to_yaml

    print(to_yaml(cfg), end="")
