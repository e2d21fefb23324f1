"""The page of all commands, made from their help: ``python -m recollect.cli.commands_reference > docs/commands.md``."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer

from recollect.cli import app

HEADER = """# Commands

What each command does, what it takes, and its options. Settings (`key=value`) are in [config.md](config.md).

Exit codes: 0 done; 1 something failed part-way, with one line that says what; 2 bad input; 130 interrupted.
`RECOLLECT_DEBUG=1` shows the traceback of a failure.

This page is generated: `python -m recollect.cli.commands_reference > docs/commands.md`.
"""


def commands_page() -> str:
    """The whole page."""
    every = commands(typer.main.get_command(app), "recollect")
    return "\n".join([HEADER, *(line for name, command in every for line in section(name, command))])


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """(name, command) of everything below a group, in the order of ``--help``."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
    for word, below in (inner or {}).items():
        yield from commands(below, f"{name} {word}")


def section(name: str, command: Any) -> Iterator[str]:
    """A command: its words, and a table of what it takes."""
    yield f"## {name}\n"
    for paragraph in inspect.cleandoc(command.help).split("\n\n"):
        lines = paragraph.splitlines()
        yield "```bash\n" + "\n".join(lines[1:]) + "\n```\n" if lines[0] == "\b" else paragraph + "\n"
    rows = [(names(p), p.help) for p in command.params if p.help and not p.hidden and p.name != "help"]
    if rows:
        yield "| | |\n|---|---|"
        yield from (f"| {said} | {_cell(meaning)} |" for said, meaning in rows)
        yield ""


def names(param: Any) -> str:
    """What a user types: an argument's place, or an option's names."""
    if param.param_type_name == "argument":
        return f"`{_cell(param.metavar or str(param.name).upper())}`"
    value = "" if param.is_flag else f" {param.metavar or 'VALUE'}"
    return ", ".join(f"`{option}{value}`" for option in (*param.opts, *param.secondary_opts))


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


if __name__ == "__main__":
    print(commands_page(), end="")
