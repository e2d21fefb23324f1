"""What the guides, docstrings and comments name exists: files, folders, and modules with their names."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.test_imports import FOLDERS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "recollect"
TOP = ("src", "tests", "docs", "benchmarks", "examples", "scripts")  # folders of the project

PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "benchmarks").glob("*.md"),
        *(ROOT / "examples").glob("*.md"),
        PACKAGE / "models" / "tiny" / "README.md",
    ]
)
SOURCES = sorted(p for top in TOP for p in (ROOT / top).rglob("*.py"))

ENDINGS = "py|md|yaml|yml|toml|h|cpp|sh"
PATH = re.compile(rf"(?<![\w/.*<>{{$-])((?:\.\./)*[\w.-]+(?:/[\w.-]+)*\.(?:{ENDINGS}))(?![\w/*])")
FOLDER = re.compile(r"`([\w.-]+(?:/[\w.-]+)*/)`")
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[\w-]*)?\)")
DOTTED = re.compile(r"(?<![\w./])recollect(?:\.[A-Za-z_]\w*)+(?::\w+)?")
IMPORT = re.compile(r"^from (recollect[\w.]*) import (.+)$", re.MULTILINE)

OTHERS = {  # files of a run, of a user, or of another system: no files of the project
    *("config.yaml", "report.md", "validation.md", "templates.yaml", "weights.yaml", "captions.txt", "table.md"),
    *(
        "mine.yaml",
        "my.yaml",
        "mine.py",
        "plan.yaml",
        "my_tools.py",
        "my_reward.py",
        "my_rewards.py",
        "my_agent.py",
        "my_server.py",
        "file.py",
    ),
    "arbor.yaml",  # of the LoCoMo guide
    *("rl_defaults.yaml", "trl_defaults.yaml", "training_config.yaml"),  # VideoMultiAgents, these and the next
    *("configs/rl_defaults.yaml", "configs/trl_defaults.yaml", "configs/training_config.yaml"),
    *(
        "MHQA_agent/Main.py",
        "Math_agent/Main.py",
        "Video_multiagent/Main.py",
        "convert_to_out_traj_format.py",
        "eval.py",
    ),
    *("examples/train_example.py", "training/trl_train_rl.py", "training/trl_train_tool_sft.py"),
    *("scripts/build_sft_datasets.py", "scripts/calculate_rewards.py", "scripts/train_models.py"),
    *("recurrent/impls/async_memory.py", "recurrent/impls/memory.py", "_verl_dataset.py"),  # MemAgent, two-stage
}
OTHER_FOLDERS = {  # of a run or a pipeline
    *(
        "plots/",
        "site/",
        "model/",
        "checkpoints/best/",
        "trackers/",
        ".items/",
        "raw/",
        "unified/",
        "sft_data/",
        "sft/",
        "rl/",
        "logs/",
    ),
}
PLACEHOLDER = re.compile(r"(^|[/-])[A-Z]+([/.]|$)")  # `FILE.py`, `rewards/NAME.py`, `checkpoints/step-N/`


@cache
def paths() -> set[str]:
    """Every file and folder of the project, from its root; folders end with a slash."""
    found = {p.name for p in ROOT.iterdir() if p.is_file()}
    for top in TOP:
        for p in (ROOT / top).rglob("*"):
            if "__pycache__" not in p.parts:
                found.add(p.relative_to(ROOT).as_posix() + ("/" if p.is_dir() else ""))
    return found | {f"{top}/" for top in TOP}


def exists(name: str, page: Path) -> bool:
    """Whether a path exists below the page's folder, the root or any other folder of the project."""
    if ".." in name.split("/"):
        return (page.parent / name).exists()
    return any(known == name or known.endswith(f"/{name}") for known in paths())


@cache
def names_in(module: Path) -> set[str]:
    """What a module defines or imports at its top level."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {a.asname or a.name for a in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)  # names that a module's __getattr__ gives
    return found


def is_module_or_name(dotted: str) -> bool:
    """Whether a dotted name is a module, or a name in one."""
    parts = re.split(r"[.:]", dotted)[1:]
    here = PACKAGE
    while parts and (here / parts[0]).is_dir():
        here /= parts.pop(0)
    if parts and (here / f"{parts[0]}.py").is_file():
        here /= f"{parts.pop(0)}.py"
    else:
        here /= "__init__.py"
    return not parts or parts[0] in names_in(here)


def prose_of(source: Path) -> str:
    """The docstrings and comments of a file."""
    text = source.read_text()
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    nodes = (n for n in ast.walk(ast.parse(text)) if isinstance(n, kinds))
    said = [ast.get_docstring(n) or "" for n in nodes]
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return "\n".join([*said, *(t.string for t in tokens if t.type == tokenize.COMMENT)])


def is_ours(name: str) -> bool:
    """Whether a path is meant to be one of the project."""
    return name not in OTHERS | OTHER_FOLDERS and not name.startswith("runs/") and not PLACEHOLDER.search(name)


def missing(text: str, page: Path, links: bool) -> Iterator[str]:
    """What a text names that is not there."""
    for found in [*PATH.findall(text), *FOLDER.findall(text)]:
        if is_ours(found) and not exists(found, page):
            yield found
    for found in LINK.findall(text) if links else ():
        if not (page.parent / found).exists():
            yield found
    for found in DOTTED.findall(text):
        if not is_module_or_name(found):
            yield found
    for module, names in IMPORT.findall(text):
        wanted = [n.split(" as ")[0].strip(" ()") for n in names.split("#")[0].split(",")]
        yield from (f"{module}.{n}" for n in wanted if n and not is_module_or_name(f"{module}.{n}"))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_pages_name_what_exists(page: Path) -> None:
    assert sorted(set(missing(page.read_text(), page, links=True))) == []


def test_docstrings_and_comments_name_what_exists() -> None:
    wrong = {s.relative_to(ROOT).as_posix(): sorted(set(missing(prose_of(s), s, links=False))) for s in SOURCES}
    assert {name: found for name, found in wrong.items() if found} == {}


def test_the_table_of_folders_is_the_order_of_imports() -> None:
    table = (ROOT / "docs" / "architecture.md").read_text().partition("## The folders")[2].partition("###")[0]
    rows = re.findall(r"^\| `(\w+)(?:/|\.py)` \|", table, re.MULTILINE)
    assert [*rows, "__main__"] == list(FOLDERS)


def test_the_reader_of_names_sees_what_is_wrong() -> None:
    text = "`train/rl.py`, `old/`, [x](gone.md), `recollect.compose`, recollect.types.Nothing, tools/base.py"
    assert set(missing(text, ROOT / "README.md", links=True)) == {
        *("train/rl.py", "old/", "gone.md", "recollect.compose", "recollect.types.Nothing", "tools/base.py"),
    }
    right = "`training/rl/step.py`, `engine/`, `recollect.config.compose`, recollect.types.Task, docs/tools.md"
    assert list(missing(right, ROOT / "README.md", links=True)) == []
    assert list(missing("from recollect.types import Task, Nothing", ROOT / "README.md", False)) == [
        "recollect.types.Nothing"
    ]
