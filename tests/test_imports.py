"""The import direction: nothing on the left of the data flow knows anything to its right, and torch stays right."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import recollect

ROOT = Path(recollect.__file__).parent
LAYERS: list[list[str]] = [  # left to right; a name stands for the module and for everything below it
    [
        *(
            "recollect.types",
            "recollect.config",
            "recollect.config.rules",
            "recollect.config.compose",
            "recollect.runtime.plugins",
        ),
        *("recollect.config.translate", "recollect.config.translate.verl_reference"),
        *(
            "recollect.config.aliases",
            "recollect.config.finite",
            "recollect.chat.media",
            "recollect.config.startup_notes",
            "recollect.files.output",
            "recollect.files.locks",
            "recollect.runtime.deadline",
            "recollect.domains",
            "recollect.config.roles",
            "recollect.trajectories",
            "recollect.config.translate.trl",
        ),
        *("recollect.policies.endpoint", "recollect.policies.openai_messages", "recollect.policies.http_replies"),
        *(
            "recollect.runtime.secrets",
            "recollect.files.reading",
            "recollect.files.unpacking",
            "recollect.config.amounts",
        ),
        *("recollect.chat", "recollect.agents.session", "recollect.data", "recollect.rewards", "recollect.agents"),
        *(
            "recollect.agents.rollout",
            "recollect.agents.progress",
            "recollect.policies.scripted",
            "recollect.runs.directory",
            "recollect.runtime.console",
            "recollect.config.reference",
        ),
        *(
            "recollect.runtime.threads",
            "recollect.sandbox",
            "recollect.tools",
            "recollect.retrieval",
            "recollect.runs.trackers",
        ),
        "recollect.tools.memory",
    ],
    ["recollect.models", "recollect.engine", "recollect.algos"],
    [
        *(
            "recollect.training",
            "recollect.eval",
            "recollect.workflows.dry_run.predict",
            "recollect.workflows.dry_run.dry_run",
            "recollect.serve",
        ),
        *("recollect.workflows.pipeline", "recollect.workflows.stages"),
    ],
    ["recollect.cli", "recollect.__main__"],
]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(p): p for p in sorted(ROOT.rglob("*.py"))}
PACKAGES = ("recollect", "recollect.policies")  # hold nothing but what is below them


def layer_of(module: str) -> int:
    for number, names in enumerate(LAYERS):
        if any(module == n or module.startswith(f"{n}.") for n in names):
            return number
    return 0 if module in PACKAGES else -1


def module_level_imports(tree: ast.Module) -> list[str]:
    """Modules imported when the module itself is: not inside functions, not under TYPE_CHECKING."""
    found: list[str] = []
    nodes: list[ast.AST] = list(tree.body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are written in full"
            source = node.module or ""
            below = [f"{source}.{a.name}" for a in node.names]
            found += [name if name in MODULES else source for name in below]
        nodes += ast.iter_child_nodes(node)
    return found


def imports_of(module: str) -> list[str]:
    return module_level_imports(ast.parse(MODULES[module].read_text()))


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_module_has_a_layer() -> None:
    assert [m for m in MODULES if layer_of(m) < 0] == []


@pytest.mark.parametrize("module", MODULES)
def test_no_module_imports_to_its_right(module: str) -> None:
    ours = [name for name in imports_of(module) if name.split(".")[0] == "recollect"]
    assert [name for name in ours if layer_of(name) > layer_of(module)] == []


@pytest.mark.parametrize("module", [m for m in MODULES if layer_of(m) == 0])
def test_left_modules_do_not_name_torch(module: str) -> None:
    heavy = {"torch", "transformers", "tokenizers", "safetensors"}
    assert [name for name in imports_of(module) if name.split(".")[0] in heavy] == []


def test_the_reader_of_imports_sees_what_it_should() -> None:
    text = "if x:\n  import torch\nclass A:\n  from recollect import run\ndef f():\n  import typer\n"
    assert sorted(module_level_imports(ast.parse(text))) == ["recollect.runs.directory", "torch"]


def test_importing_the_left_side_leaves_torch_out() -> None:
    left = [m for m in MODULES if layer_of(m) == 0]
    assert "recollect.agents.rollout" in left
    assert "recollect.policies.scripted" in left
    code = f"import importlib, sys\nfor m in {left!r}: importlib.import_module(m)\n"
    code += "print(sorted(m for m in sys.modules if m in ('torch', 'transformers', 'typer')))"
    assert run_python(code) == "[]"


def test_import_recollect_is_instant() -> None:
    code = "import sys, time\nstart = time.process_time()\nimport recollect\ntook = time.process_time() - start\n"
    code += "print(took, *(m in sys.modules for m in ('torch', 'transformers', 'typer')))"
    results = [run_python(code).split() for _ in range(3)]
    assert min(float(r[0]) for r in results) < 0.3
    assert results[0][1:] == ["False"] * 3
