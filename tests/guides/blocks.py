"""Blocks of code in the pages: where they are, what kind they have, and what a comment before them says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "examples/README.md", "benchmarks/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
BLOCK = re.compile(r"(?:<!-- (run|from): (.+?) -->\n)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A block of a page."""

    page: str
    line: int
    kind: str  # python, bash, yaml, json; text is not run
    text: str
    target: str = ""  # the make target that runs it, where it cannot be run here
    source: str = ""  # the file of which it is an excerpt

    @property
    def name(self) -> str:
        """Where it is."""
        return f"{self.page}:{self.line}"


def blocks(*kinds: str) -> list[Block]:
    """The blocks of all pages that are of these kinds; all, without any."""
    return [block for page in PAGES for block in read(page) if not kinds or block.kind in kinds]


def read(page: Path) -> Iterator[Block]:
    """The blocks of a page."""
    text, name = page.read_text(), page.relative_to(ROOT).as_posix()
    for found in BLOCK.finditer(text):
        word, value, kind, body = found.groups()
        said = {"run": {"target": value}, "from": {"source": value}}.get(word or "", {})
        yield Block(name, text.count("\n", 0, found.start(3)) + 1, kind, body, **said)


def command_lines(text: str) -> list[str]:
    """The commands of a shell block: lines that end in a backslash are joined, comments are dropped."""
    joined = text.replace("\\\n", " ")
    return [line for raw in joined.splitlines() if (line := re.sub(r"(^|\s)#.*$", "", raw).strip())]
