"""Every block of Python, YAML and JSON in the pages is run or read; those of one page follow one another."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

import recollect
from recollect.config.compose import compose
from recollect.samplers.bindings import RoleBinder
from recollect.serve.server import ServeLimits, Server
from recollect.types import Task, Trajectory
from tests.guides.blocks import ROOT, Block, blocks
from tests.guides.workshop import NO_SFT, RUN, SMALL
from tests.serve.test_server import Running

ADDRESS = "http://127.0.0.1:8000"
CODE = [b for b in blocks("python") if not b.target]
BY_PAGE = {page: [b for b in CODE if b.page == page and not b.source] for page in sorted({b.page for b in CODE})}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """recollect as users have it, with settings after theirs that make it quick."""
    for name in ("train", "sft", "stages", "evaluate"):
        function = getattr(recollect, name)

        def quick(*args: Any, function: Any = function, name: str = name, **kwargs: Any) -> Any:
            inspect.signature(function).bind(*args, **kwargs)
            given: Mapping[str, Any] = kwargs.pop("settings", None) or {}
            steps = SMALL if name == "sft" or args[:1] == ("arithmetic",) else SMALL | NO_SFT
            return function(*args, settings={**given, **steps}, **{**kwargs, "quiet": True})

        monkeypatch.setattr(recollect, name, quick)


def presets() -> dict[str, Any]:
    """What the pages have at hand without saying so."""
    from recollect.tools import tool

    task, trajectory = Task("1", "What does mira hold?", answers=("472",)), Trajectory("1", 0)
    trial = SimpleNamespace(
        number=0, report=lambda *_: None, should_prune=lambda: True, suggest_float=lambda *_, **__: 1e-3
    )
    return {
        "__name__": "__main__",
        "recollect": recollect,
        "tool": tool,
        "cfg": compose(None, []),
        "task": task,
        "trajectory": trajectory,
        "trial": trial,
        "my_score": 0.5,
    }


async def run(code: Any, names: dict[str, Any]) -> None:
    """A block inside a running event loop, as in a notebook's cell."""
    made = eval(code, names)
    if inspect.isawaitable(made):
        await made


@pytest.fixture
def server() -> Iterator[Callable[[str], str]]:
    """A function that starts the server of a page, the first time that it is called, and gives its address."""
    started: list[Running] = []

    def address(page: str) -> str:
        if page == "docs/serving.md" and not started:
            found = RoleBinder(compose(None, ["trainer.threads=1", "trainer.device=cpu"]), None).loaded(RUN)
            started.append(Running(Server(found.sampler, found.renderer, RUN, ServeLimits())))
        return started[0].url if started else ADDRESS

    yield address
    for one in started:
        one.stop()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("page", [page for page, found in BY_PAGE.items() if found])
def test_the_blocks_of_a_page_run(
    page: str, copy: Path, server: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(copy)
    names = presets()
    if page == "docs/trajectories.md":  # there it is one of the unified form
        names["trajectory"] = json.loads((copy / "unified.jsonl").read_text().splitlines()[0])
    for block in BY_PAGE[page]:
        text = "\n" * block.line + block.text.replace(ADDRESS, server(page))  # an error names the line of the page
        code = compile(text, str(ROOT / page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        asyncio.run(run(code, names))
    if "objective" in names:
        names["objective"](names["trial"])


@pytest.mark.parametrize("block", [b for b in CODE if b.source], ids=lambda b: b.name)
def test_an_excerpt_is_in_its_file(block: Block) -> None:
    source = (ROOT / block.source).read_text()
    called = {n.func for n in ast.walk(ast.parse(block.text)) if isinstance(n, ast.Call)}
    names = {f.id if isinstance(f, ast.Name) else f.attr for f in called if isinstance(f, ast.Name | ast.Attribute)}
    assert {name for name in names if f"{name}(" not in source} == set()


@pytest.mark.parametrize("block", blocks("yaml", "json"), ids=lambda b: b.name)
def test_data_in_the_pages_can_be_read(block: Block) -> None:
    assert (yaml.safe_load if block.kind == "yaml" else json.loads)(block.text)


def plans() -> Iterator[Block]:
    """YAML blocks that are whole recipes of stages."""
    return (b for b in blocks("yaml") if re.search("^stages:", b.text, re.MULTILINE))


@pytest.mark.parametrize("block", plans(), ids=lambda b: b.name)
def test_plans_of_stages_are_accepted(block: Block, tmp_path: Path) -> None:
    from recollect.workflows.stages.stage_plan import read_plan

    (tmp_path / "plan.yaml").write_text(block.text)
    assert read_plan(str(tmp_path / "plan.yaml"), []).stages
