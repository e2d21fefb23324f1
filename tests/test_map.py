"""What `make map` counts: one name means one thing in the whole package."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "map.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("source_map", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_type_aliases_count_also_those_for_type_checkers(script: ModuleType) -> None:
    text = "Row = dict[str, Any]\nif TYPE_CHECKING:\n    Cell = int | str\nMOST = 3\nT = list[int]\n"
    assert script.aliases({"a.py": text}) == ["Row", "Cell"]
    assert script.recurring(script.aliases({"a.py": text, "b.py": "Row = tuple[int, int]\n"})) == ["Row ×2"]


def test_speed_code_is_kernels_and_cpp(script: ModuleType) -> None:
    files = {
        "engine/plain.py": "1\n",
        "engine/cuda/x.py": "1\n2\n",
        "engine/cpu/k.cpp": "1\n2\n3\n",
        "chat/y.py": "1\n",
    }
    assert script.speed(files) == "5 (C++ 3) against 1"


def test_no_name_means_two_things(script: ModuleType) -> None:
    found = script.figures(script.working_tree())
    assert found["file names that recur"] == "0"
    assert found["names of classes and type aliases that recur"] == "0"
    assert found["the same with imports inside functions"] == "0"
    written_twice = [key for key, figure in found.items() if key.startswith("files with a ") and figure[0] != "1"]
    assert written_twice == []
