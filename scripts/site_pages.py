"""Hooks of mkdocs: pages of the site that are made from files outside docs/, and links to such files."""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = {  # file of the project → page of the site
    "benchmarks/README.md": "benchmarks.md",
    "examples/README.md": "examples.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "src/recollect/models/tiny/README.md": "model-card.md",
}
HOMES = {page: source for source, page in PAGES.items()}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#:\s]+)(#[\w-]*)?\)")
FENCED = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text()
        files.append(File.generated(config, page, content=text + (programs() if page == "examples.md" else "")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to files of the project at pages; a file that has no page is named without a link."""
    parts = FENCED.split(markdown)
    return "".join(part if part.startswith("```") else links(part, page.file.src_uri) for part in parts)


def links(text: str, page: str) -> str:
    """The text of a page with links that work in the site. What leads nowhere is left for mkdocs to refuse."""
    source = HOMES.get(page, f"docs/{page}")

    def target(found: re.Match[str]) -> str:
        mark, label, link, anchor = found.groups()
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
        here = place(file)
        if here is not None:
            return f"{mark}[{label}]({posixpath.relpath(here, posixpath.dirname(page) or '.')}{anchor or ''})"
        return label if (ROOT / file).exists() else found.group(0)

    return LINK.sub(target, text)


def place(file: str) -> str | None:
    """Where a file of the project is in the site, if it is there."""
    if file in PAGES:
        return PAGES[file]
    return file.removeprefix("docs/") if file.startswith("docs/") and (ROOT / file).is_file() else None


def programs() -> str:
    """The examples themselves."""
    files = sorted((ROOT / "examples").glob("*.py"))
    parts = [f"\n## {file.name}\n\n```python\n{file.read_text().rstrip()}\n```\n" for file in files]
    return "\n".join(parts + [notebook(file) for file in sorted((ROOT / "examples").glob("*.ipynb"))])


def notebook(file: Path) -> str:
    """A notebook's text and code, without its output."""
    cells: list[dict[str, Any]] = json.loads(file.read_text())["cells"]
    shown = ["".join(cell["source"]) for cell in cells]
    kinds = [cell["cell_type"] for cell in cells]
    texts = [re.sub("^#+ (.*)$", r"**\1**", text, flags=re.MULTILINE) for text in shown]
    body = [f"```python\n{s}\n```" if kind == "code" else t for s, t, kind in zip(shown, texts, kinds, strict=True)]
    return "\n".join([f"\n## {file.name}\n", *(f"{part}\n" for part in body)])
