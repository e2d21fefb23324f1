"""The command line, one file for each kind of command.

Exit codes: 0 done, 1 something failed part-way (said what), 2 bad input, 130 interrupted and saved.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

import typer

from recollect.cli.app import app
from recollect.types import BadInput

__all__ = ["app", "main"]

for _part in ("training", "evaluation", "trajectories", "look"):  # the order in which --help lists their commands
    import_module(f"recollect.cli.{_part}")


def main() -> None:
    """Run the command line, turning errors into one line and an exit code."""
    try:
        code = app(_spelt_out(sys.argv[1:]), standalone_mode=False)  # a typer.Exit comes back as its number
        if code == 130:
            raise KeyboardInterrupt
        sys.exit(code)
    except (KeyboardInterrupt, typer.Abort):
        _fail("interrupted; what was saved can be resumed with the same command", 130)
    except BadInput as error:
        _fail(str(error), 2)
    except Exception as error:
        _handle(error)


_MODEL, _OUT, _DATA = "actor_rollout_ref.model.path", "trainer.default_local_dir", "data.train_files"
GUIDE = {  # options of the trajectory guide's scripts, and the settings that they stand for
    "sft": {"--model_name": _MODEL, "--data_root": _DATA, "--out_dir": _OUT},
    "train": {"--model_name": _MODEL, "--trajectory_glob": _DATA, "--out_dir": _OUT, "--min_reward": "data.min_reward"},
}


def _spelt_out(words: list[str]) -> list[str]:
    """A command's words with `--skip-STAGE` as `--skip STAGE`, and options of the guide as settings."""
    command = words[0] if words else ""
    if command == "pipeline":
        split = (["--skip", w.removeprefix("--skip-")] if w.startswith("--skip-") else [w] for w in words)
        return [word for pair in split for word in pair]
    made, settings, rest = list[str](), list[str](), iter(words)
    for word in rest:
        name, has_value, value = word.partition("=")
        key = GUIDE.get(command, {}).get(name)
        if key is None:
            made.append(word)
        elif has_value or (value := next(rest, "")):
            settings.append(f"{key}={value}")
        else:
            raise BadInput(f"{name} needs a value")
    return made + settings


def _handle(error: Exception) -> None:
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error)
        sys.exit(2)
    if hasattr(error, "format_message"):  # a usage error of click, of which typer may bring its own copy
        _fail(error.format_message(), 2)
    if type(error).__name__ == "Interrupted":
        _fail(f"interrupted; {error}" if str(error) else "interrupted and saved; the same command goes on", 130)
    if os.environ.get("RECOLLECT_DEBUG"):
        raise error
    _fail(f"{type(error).__name__}: {error} (RECOLLECT_DEBUG=1 shows where)", 1)


def _fail(message: str, code: int) -> None:
    from recollect.secrets import redacted

    print(f"recollect: {redacted(' '.join(message.split()))}", file=sys.stderr)
    sys.exit(code)
