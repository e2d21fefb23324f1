"""What people see while a run goes on: a live bar in a terminal, plain lines elsewhere, nothing with --quiet."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console as RichConsole
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

SPARKS = "▁▂▃▄▅▆▇█"


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
        self.rich = RichConsole(quiet=quiet, highlight=False, width=None if self.live else 110)

    def say(self, text: str = "") -> None:
        """One line."""
        self.rich.print(text, soft_wrap=True, markup=False)

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
        print(f"recollect: {text}", file=sys.stderr)

    @contextmanager
    def progress(self, title: str, total: int, done: int = 0) -> Iterator[Any]:
        """A bar with ETA; call the yielded function as ``advance(text, count=1)``."""
        if self.live:
            columns = (
                TextColumn("[bold]{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.completed:.0f}/{task.total:.0f}"),
                TimeElapsedColumn(),
                TextColumn("ETA"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[text]}"),
            )
            with Progress(*columns, console=self.rich) as bar:
                job = bar.add_task(title, total=total, completed=done, text="")
                yield lambda text="", count=1: bar.update(job, advance=count, text="" if self.brief else text)
            return
        start, state = time.monotonic(), {"done": done, "last": 0.0}

        def advance(text: str = "", count: int = 1) -> None:
            state["done"] += count
            now = time.monotonic()
            finished = state["done"] == total
            if (not text or self.brief) and not finished and now - state["last"] < 10:
                return
            state["last"] = now
            rate = (now - start) / max(1, state["done"] - done)
            eta = rate * max(0, total - state["done"])
            self.say(f"{title} {state['done']}/{total}  ETA {eta:.0f} s  {text}".rstrip())

        yield advance
