"""Progress in a notebook: one bar that is drawn anew in its place."""

from __future__ import annotations

import html
import sys
import time

BETWEEN_DRAWINGS = 0.2  # seconds


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return hasattr(shell, "kernel")


class NotebookBar:
    """A bar with ETA below the cell that is running."""

    def __init__(self, title: str, total: int, done: int, brief: bool) -> None:
        from IPython.display import HTML, display

        self.title, self.total, self.first, self.done, self.brief = title, total, done, done, brief
        self.start, self.last, self.text, self.make = time.monotonic(), 0.0, "", HTML
        self.place = display(HTML(self.drawing()), display_id=True)

    def __call__(self, text: str = "", count: int = 1) -> None:
        """So many more are done."""
        self.done += count
        self.text = "" if self.brief else text
        self.draw(self.text, now=bool(text) or self.done >= self.total)

    def within(self, text: str) -> None:
        """How far the one that is under way has come."""
        self.draw(text, now=False)

    def draw(self, text: str, now: bool) -> None:
        """Show a text, at once or unless the bar was drawn a moment ago."""
        moment = time.monotonic()
        if now or moment - self.last >= BETWEEN_DRAWINGS:
            self.last = moment
            self.place.update(self.make(self.drawing(text)))

    def drawing(self, text: str = "") -> str:
        """The bar as HTML."""
        rate = (time.monotonic() - self.start) / max(1, self.done - self.first)
        left = f"ETA {rate * max(0, self.total - self.done):.0f} s" if self.done > self.first else ""
        words = f"{self.done}/{self.total} {left} {text}"
        bar = f'<progress value="{self.done}" max="{self.total}" style="width:16em"></progress>'
        return f"<code>{html.escape(self.title)} {bar} {html.escape(words)}</code>"
