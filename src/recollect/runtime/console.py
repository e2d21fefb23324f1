"""Messages and progress for people: a bar in a terminal or a notebook, lines elsewhere, nothing with --quiet."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console as RichConsole
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from recollect.runtime.error_text import MOST, shortened
from recollect.runtime.notebook_bar import NotebookBar, in_notebook
from recollect.runtime.secrets import redacted, without_keys

SPARKS = "▁▂▃▄▅▆▇█"
BETWEEN_LINES = 10.0  # seconds between two lines about work that is under way


def sparkline(values: Sequence[float], width: int = 16) -> str:
    """The last values as a little curve between 0 and the largest."""
    shown = list(values)[-width:]
    top = max([*shown, 1e-9])
    return "".join(SPARKS[max(0, min(7, int(v / top * 7.999)))] for v in shown)


class Console:
    """Messages and progress."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self.brief = False  # no line for every step (trainer.logger without console)
        self.live = sys.stdout.isatty() and not quiet
        self.notebook = in_notebook() and not quiet
        width = None if self.live else 110
        self.rich = RichConsole(quiet=quiet, highlight=False, width=width, force_jupyter=False)

    def say(self, text: str = "") -> None:
        """One line."""
        self.rich.print(without_keys(text), soft_wrap=True, markup=False)

    def show(self, thing: Any) -> None:
        """Something that rich can draw, such as a table."""
        self.rich.print(thing)

    def table(self, title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table: drawn in a terminal, aligned text elsewhere."""
        if self.live:
            drawn = Table(title=title, title_justify="left", show_header=any(header))
            for name in header:
                drawn.add_column(name)
            for row in rows:
                drawn.add_row(*map(Text, row))  # what users wrote is not markup
            self.show(drawn)
            return
        lines = [header, *rows] if any(header) else list(rows)
        widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
        self.say(title)
        for line in lines:
            self.say("  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())

    def warn(self, text: str) -> None:
        """A line on standard error, even when quiet."""
        print(f"recollect: {shortened(redacted(text[:MOST]), len(text))}", file=sys.stderr)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Standard output is this console's alone: what libraries print there is not shown."""
        self.rich.file = getattr(sys.stdout, "rich_proxied_file", sys.stdout)
        try:
            with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
                yield
        finally:
            self.rich.file = None  # type: ignore[assignment]  # whatever sys.stdout is

    @contextmanager
    def progress(self, title: str, total: int, done: int = 0) -> Iterator[Bar]:
        """A bar with ETA in a terminal or a notebook, lines elsewhere."""
        if self.notebook:
            yield NotebookBar(title, total, done, self.brief)
            return
        if not self.live:
            yield Lines(self, title, total, done)
            return
        columns = (
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[text]}", markup=False),
            TextColumn("{task.fields[within]}", markup=False, style="dim"),
        )
        with Progress(*columns, console=self.rich) as drawn:
            job = drawn.add_task(title, total=total, completed=done, text="", within="")
            yield DrawnBar(drawn, job, self.brief)


class Bar(Protocol):
    """Progress of one piece of work."""

    def __call__(self, text: str = "", count: int = 1) -> None:
        """Count so many more as done."""
        ...

    def within(self, text: str) -> None:
        """Show how far the current one has come."""
        ...


class DrawnBar:
    """A bar in a terminal."""

    def __init__(self, drawn: Progress, job: Any, brief: bool) -> None:
        self.drawn, self.job, self.brief = drawn, job, brief

    def __call__(self, text: str = "", count: int = 1) -> None:
        self.drawn.update(self.job, advance=count, text="" if self.brief else text, within="")

    def within(self, text: str) -> None:
        self.drawn.update(self.job, within=text)


class Lines:
    """A bar as plain lines: one for each text, and at most one in ten seconds in between."""

    def __init__(self, console: Console, title: str, total: int, done: int) -> None:
        self.console, self.title, self.total, self.first, self.done = console, title, total, done, done
        self.start = self.last = time.monotonic()

    def __call__(self, text: str = "", count: int = 1) -> None:
        self.done += count
        now = time.monotonic()
        if (not text or self.console.brief) and self.done != self.total and now - self.last < BETWEEN_LINES:
            return
        self.last = now
        rate = (now - self.start) / max(1, self.done - self.first)
        eta = rate * max(0, self.total - self.done)
        self.console.say(f"{self.title} {self.done}/{self.total}  ETA {eta:.0f} s  {text}".rstrip())

    def within(self, text: str) -> None:
        now = time.monotonic()
        if now - self.last >= BETWEEN_LINES:
            self.last = now
            self.console.say(f"{self.title} {min(self.done + 1, self.total)}/{self.total}: {text}")
