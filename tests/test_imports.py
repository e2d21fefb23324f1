"""Folders form a DAG: each imports only from folders that stand before it, wherever in a file the import is written."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import recollect

ROOT = Path(recollect.__file__).parent
FOLDERS = (  # each may import from those before it
    *(
        "types",
        "runtime",
        "registries",
        "files",
        "dist",
        "images",
        "chat",
        "trajectories",
        "config",
        "data",
        "policies",
        "gui",
    ),
    *("tasks", "retrieval", "sandbox", "tools", "rewards", "domains", "agents", "oracles", "runs", "algos", "models"),
    *("sources", "packing", "engine", "samplers", "eval", "dspy", "training", "workflows", "serve", "library"),
    *("cli", "__main__"),
)
FIRST_WITH_TORCH = "models"  # the folders before it never import torch when they are imported
HEAVY = {"torch", "transformers", "tokenizers", "safetensors"}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(p): p for p in sorted(ROOT.rglob("*.py"))}


def folder_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imports(node: ast.AST, inside: bool = False) -> Iterator[tuple[str, bool]]:
    """(module, whether a function does it) of every import but those for type checkers."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from ((a.name, inside) for a in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "imports are written in full"
            source = child.module or ""
            yield from ((below if (below := f"{source}.{a.name}") in MODULES else source, inside) for a in child.names)
        function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from imports(child, inside or function)


def imports_of(module: str) -> list[tuple[str, bool]]:
    return list(imports(ast.parse(MODULES[module].read_text())))


def backward(edges: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Imports from a folder that stands later."""
    place = {name: i for i, name in enumerate(FOLDERS)}
    return [(a, b) for a, b in edges if folder_of(b) and place[folder_of(b)] > place[folder_of(a)]]


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_folder_has_a_place() -> None:
    assert {folder_of(m) for m in MODULES} - {""} == set(FOLDERS)


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_folder_imports_from_a_later_one(folder: str) -> None:
    ours = [m for m in MODULES if folder_of(m) == folder]
    edges = [(m, name) for m in ours for name, _ in imports_of(m) if name.split(".")[0] == "recollect"]
    assert backward(edges) == []


def test_the_package_itself_imports_nothing_of_its_folders() -> None:
    assert [name for name, inside in imports_of("recollect") if name.startswith("recollect.") and not inside] == []


def test_imports_for_type_checkers_alone_name_what_exists() -> None:
    for module, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("recollect."):
                assert node.module in MODULES, f"{module} imports from {node.module}"


def test_folders_are_named_by_strings_in_the_registries_alone() -> None:
    """A string is no way round the order: only a registry may name the module that fills it."""
    named = set()
    for module, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
                continue
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            first = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else ""
            if name in ("import_module", "__import__", "Registry", "Specs") and str(first).startswith("recollect"):
                named.add((module, name))
    assert named == {("recollect.registries", "Registry"), ("recollect.registries", "Specs")}


def test_the_reader_of_imports_sees_what_it_should() -> None:
    text = "if TYPE_CHECKING:\n  import torch\nclass A:\n  from recollect import runs\ndef f():\n  import typer\n"
    assert list(imports(ast.parse(text))) == [("recollect.runs", False), ("typer", True)]
    assert backward(
        [
            ("recollect.chat.renderer", "recollect.tools.tool_definition"),
            ("recollect.tools.tool_definition", "recollect.chat"),
        ]
    )


LEFT = [m for m in MODULES if folder_of(m) in FOLDERS[: FOLDERS.index(FIRST_WITH_TORCH)]]


@pytest.mark.parametrize("module", LEFT)
def test_left_modules_do_not_name_torch(module: str) -> None:
    assert [name for name, inside in imports_of(module) if name.split(".")[0] in HEAVY and not inside] == []


def test_importing_the_left_side_leaves_torch_out() -> None:
    assert "recollect.agents.rollout" in LEFT
    code = f"import importlib, sys\nfor m in {LEFT!r}: importlib.import_module(m)\n"
    code += "print(sorted(m for m in sys.modules if m in ('torch', 'transformers', 'typer')))"
    assert run_python(code) == "[]"


def test_import_recollect_is_instant() -> None:
    code = "import sys, time\nstart = time.perf_counter()\nimport recollect\ntook = time.perf_counter() - start\n"
    code += "print(took, *(m in sys.modules for m in ('torch', 'transformers', 'typer')))"
    results = [run_python(code).split() for _ in range(2)]
    assert min(float(r[0]) for r in results) < 0.3  # the better of two: another process may hold the core
    assert results[0][1:] == ["False"] * 3
