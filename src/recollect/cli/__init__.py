"""The command line, one file for each kind of command.

Exit codes: 0 done, 1 something failed part-way (the message says what), 2 bad input, 130 interrupted and saved.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from importlib import import_module
from typing import NoReturn

import typer

from recollect.cli.app import app
from recollect.runtime.error_text import MOST, error_text, named_error, shortened
from recollect.types import BadInput

__all__ = ["app", "main"]

COMPLETION = "_RECOLLECT_COMPLETE"  # set by the shell that asks for completions
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)  # a disk that takes no more

for _part in (
    "training",
    "evaluation",
    "optimizing",
    "locomo_command",
    "trajectories",
    "package",
):  # in the order of --help
    import_module(f"recollect.cli.{_part}")


def main() -> None:
    """Run the command line, turning errors into one line and an exit code."""
    try:
        code = app(_spelt_out(sys.argv[1:]), standalone_mode=False)  # a typer.Exit comes back as its number
        if code == 130:
            raise KeyboardInterrupt
    except (KeyboardInterrupt, typer.Abort):
        _fail("interrupted; what was saved can be resumed with the same command", 130)
    except BadInput as error:
        _fail(error_text(error), 2)
    except SystemExit as error:
        if COMPLETION in os.environ:  # click ends so when it completes a command for a shell
            raise
        _fail(f"something that was called ended the program with sys.exit({error_text(error)})", 1)
    except Exception as error:
        _handle(error)
    sys.exit(code)


OPTIONS = {"sft": {"tool"}, "train": {"min_reward"}}  # keys that are options of recollect's own, too
STAGES_OF_THE_GUIDE = {"generation": "generate", "conversion": "convert"}  # what its script calls them


def _spelt_out(words: list[str]) -> list[str]:
    """A command's words with `--skip-STAGE` as `--skip STAGE`, and options of VideoMultiAgents' scripts as `--key`."""
    command = words[0] if words else ""
    if command == "pipeline":
        return [part for word in words for part in _skipped(word)]
    if command not in ("sft", "train"):
        return words
    from recollect.config.translate.trl.read import names_of

    names = names_of(command) - OPTIONS[command]
    made, rest = list[str](), iter(words)
    for word in rest:
        option, has_value, value = word.partition("=")
        name = option.removeprefix("--").replace("-", "_")
        if not option.startswith("--") or name not in names:
            made.append(word)
        elif has_value or (value := next(rest, "")):
            made += ["--key", f"{name}={value}"]
        else:
            raise BadInput(f"{option} needs a value")
    return made


def _skipped(word: str) -> list[str]:
    stage = re.sub("^--skip[-_]", "", word)
    return [word] if stage == word else ["--skip", STAGES_OF_THE_GUIDE.get(stage, stage)]


def _handle(error: Exception) -> NoReturn:
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error)
        sys.exit(2)
    if hasattr(error, "format_message"):  # a usage error of click, of which typer may bring its own copy
        _fail(error.format_message(), 2)
    if type(error).__name__ == "Interrupted":
        said = error_text(error)
        _fail(f"interrupted; {said}" if said else "interrupted and saved; the same command goes on", 130)
    if os.environ.get("RECOLLECT_DEBUG"):
        raise error
    if isinstance(error, OSError) and (error.filename is not None or error.errno in FULL):
        _fail(f"{error.filename or 'a file'} cannot be read or written: {error.strerror or error}", 2)
    _fail(f"{shortened(named_error(error))} (RECOLLECT_DEBUG=1 shows where)", 1)


def _fail(message: str, code: int) -> NoReturn:
    from recollect.runtime.secrets import redacted

    said = redacted(" ".join(message[:MOST].split()))  # first what may be a key, then the length
    print(f"recollect: {shortened(said, len(message))}", file=sys.stderr)
    sys.exit(code)
