"""The seam between the engine and what computes tokens."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch

import recollect.engine
from recollect.engine import Engine
from recollect.engine.backend import Backend, Deliver
from recollect.engine.plain import PlainBackend
from recollect.engine.prefix import PrefixChunk
from recollect.engine.request import EngineRequest
from recollect.engine.row_state import RowState
from recollect.types import Completion, Sampling
from tests.conftest import make_pair
from tests.engine.test_batching import CASES, ids

FOLDER = Path(recollect.engine.__file__).parent


def run(engine: Engine, prompts: list[list[int]], **options: Any) -> list[Completion]:
    async def go() -> list[Completion]:
        asked = [Sampling(key=str(i), max_tokens=8, **options) for i in range(len(prompts))]
        return await asyncio.gather(*(engine.generate(p, s) for p, s in zip(prompts, asked, strict=True)))

    return asyncio.run(go())


def imported(path: Path) -> set[str]:
    """Modules that a file imports, wherever the import is written."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
    return found


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_only_the_choice_knows_the_backends(path: Path) -> None:
    special = ("recollect.engine.cpu", "recollect.engine.cuda", "recollect.models.native", "triton")
    known = {name for name in imported(path) if name.startswith(special)}
    assert not known or path.stem == "choose"


@pytest.mark.parametrize("folder", ["cpu", "cuda"])
def test_backends_do_not_know_each_other(folder: str) -> None:
    other = {"cpu": "recollect.engine.cuda", "cuda": "recollect.engine.cpu"}[folder]
    for path in FOLDER.joinpath(folder).glob("*.py"):
        assert not {name for name in imported(path) if name.startswith(other)}, path


@pytest.mark.parametrize("case", CASES)
def test_the_backend_of_a_cpu_samples_what_the_plain_one_samples(case: str) -> None:
    _, ours = make_pair("Qwen3")
    prompts = CASES[case]()
    plain = run(Engine(ours, decode=str, backend=PlainBackend(ours)), prompts, seed=4)
    chosen = run(Engine(ours, decode=str), prompts, seed=4)
    assert [d.ids for d in plain] == [d.ids for d in chosen]
    for a, b in zip(plain, chosen, strict=True):
        torch.testing.assert_close(torch.tensor(a.logprobs), torch.tensor(b.logprobs), atol=1e-4, rtol=0)


class OneRow(PlainBackend):
    """A backend from outside: no two rows at a time, and tokens that are delivered a step late."""

    prompt_tail, handover = 0, 1

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.late: list[Any] = []

    def rows_that_fit(self, requests: Any) -> int:
        return 1

    def step(self, state: RowState, joining: list[EngineRequest], chunks: list[PrefixChunk], deliver: Deliver) -> None:
        self.flush(state, deliver)
        if joining or chunks or state.requests:
            super().step(state, joining, chunks, self.late.append)

    def flush(self, state: RowState, deliver: Deliver) -> None:
        late, self.late = self.late, []
        for sampled in late:
            deliver(sampled)


def test_a_backend_from_outside_serves_the_engine() -> None:
    _, ours = make_pair("Llama")
    prompts = [ids(1, 50) + ids(10 + i, 3 + i) for i in range(4)]
    backend: Backend = OneRow(ours)
    engine = Engine(ours, decode=str, backend=backend)
    assert [d.ids for d in run(engine, prompts)] == [d.ids for d in run(Engine(ours, decode=str), prompts)]
    assert engine.stats.peak_rows == 1


def test_an_engine_has_no_more_rows_than_it_was_made_for() -> None:
    _, ours = make_pair("Llama")
    engine = Engine(ours, decode=str, max_rows=2, backend=PlainBackend(ours, max_rows=256))
    run(engine, [ids(i, 9) for i in range(5)])
    assert engine.stats.peak_rows == 2
