"""Every kernel opens with what it computes, its shapes and the plain function that it equals."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import recollect

ROOT = Path(recollect.__file__).parent
WORDS = ("Computes:", "Shapes:", "Equals:")


def launched(path: Path) -> dict[str, str]:
    """Docstrings of the Triton functions of a file that are launched, by name."""
    text = path.read_text()
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    kernels = [f for f in functions if any("jit" in ast.unparse(d) for d in f.decorator_list)]
    return {f.name: ast.get_docstring(f) or "" for f in kernels if re.search(rf"\b{f.name}\[", text)}


TRITON = {f"{p.stem}.{name}": doc for p in sorted(ROOT.rglob("*.py")) for name, doc in launched(p).items()}


def test_kernels_are_found() -> None:
    assert len(TRITON) >= 12


@pytest.mark.parametrize("name", TRITON)
def test_triton_kernels(name: str) -> None:
    assert [word for word in WORDS if word not in TRITON[name]] == []


def exported() -> list[str]:
    return re.findall(r"^EXPORT\((\w+)\)", (ROOT / "models/native/blocks.cpp").read_text(), re.MULTILINE)


@pytest.mark.parametrize("name", [n for n in exported() if not n.endswith("_back")])
def test_functions_of_models(name: str) -> None:
    text = (ROOT / "models/native/blocks.cpp").read_text()
    before = text[: text.index(f"static void {name}(")]
    section = before[max(before.rfind("\n// Computes:"), before.rfind("\n// ---- ")) :]
    assert [word for word in WORDS if word not in section] == []


@pytest.mark.parametrize("name", ["attend.h", "decode.h"])
def test_functions_of_the_engine(name: str) -> None:
    opening = (ROOT / "engine/cpu" / name).read_text().split("#pragma once")[0]
    assert [word for word in WORDS if word not in opening] == []
