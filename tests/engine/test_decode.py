"""The compiled forward pass gives what the model gives."""

from __future__ import annotations

import asyncio
import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from recollect.engine import Engine
from recollect.engine.cpu.cpu_backend import CpuBackend
from recollect.models.load import load_model, load_renderer
from recollect.models.native.modules import replace_modules
from recollect.models.scratch_models import SCRATCH
from recollect.types import IMAGE_MARK, Completion, Message, Sampling
from tests.models.test_native import CONFIGS, make_model
from tests.models.test_native import pytestmark as compiled
from tests.seeing import pictures

pytestmark = compiled
PROMPTS = [list(range(5, 60))] * 5 + [list(range(9, 30))] * 2 + [[7], [3, 50, 4]]


def pair(kind: str, dtype: torch.dtype = torch.float32) -> tuple[Engine, Engine]:
    """An engine that decodes by the compiled pass, and one that asks the model."""
    ours = Engine(make_model(kind).to(dtype), decode=str)
    assert decoder_of(ours) is not None
    plain = Engine(copy.deepcopy(ours.model), decode=str)
    assert isinstance(plain.backend, CpuBackend)
    plain.backend.decoder = None
    return ours, plain


def decoder_of(engine: Engine) -> Any:
    """The compiled pass of an engine, if it has one."""
    assert isinstance(engine.backend, CpuBackend)
    return engine.backend.decoder


def run(engine: Engine, prompts: list[list[int]] = PROMPTS, **more: Any) -> list[Completion]:
    async def all_of_them() -> list[Completion]:
        asked = [Sampling(key=str(i), **{"max_tokens": 20, "temperature": 1.0} | more) for i in range(len(prompts))]
        return await asyncio.gather(*(engine.generate(p, s) for p, s in zip(prompts, asked, strict=True)))

    return asyncio.run(all_of_them())


def assert_same(found: list[Completion], expected: list[Completion], atol: float = 1e-4) -> None:
    for a, b in zip(found, expected, strict=True):
        assert a.ids == b.ids
        torch.testing.assert_close(torch.tensor(a.logprobs), torch.tensor(b.logprobs), atol=atol, rtol=0)


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("threads", [1, 3])
def test_completions_are_those_of_the_model(kind: str, threads: int) -> None:
    ours, plain = pair(kind)
    ours.threads, plain.threads = threads, 1
    try:
        assert_same(run(ours), run(plain))
    finally:
        torch.set_num_threads(1)


def test_bfloat16_is_near() -> None:
    ours, plain = pair("Qwen3", torch.bfloat16)
    found, expected = (run(e, max_tokens=2, temperature=0.0) for e in (ours, plain))
    pairs = [(a.logprobs[1], b.logprobs[1]) for a, b in zip(found, expected, strict=True) if a.ids == b.ids]
    assert len(pairs) >= len(PROMPTS) - 2
    a, b = torch.tensor(pairs).unbind(1)
    torch.testing.assert_close(a, b, atol=0.1, rtol=0)


def test_new_weights_are_read() -> None:
    ours, plain = pair("Qwen2")
    run(ours)
    with torch.no_grad():
        for mine, theirs in zip(ours.model.parameters(), plain.model.parameters(), strict=True):
            mine.mul_(1.1)
            theirs.copy_(mine)
    for engine in (ours, plain):
        engine.new_weights(1)
    assert_same(run(ours), run(plain))


def test_a_larger_model_decodes_a_few_rows_by_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recollect.engine.cpu.decode.SMALL", 0)
    monkeypatch.setattr("recollect.engine.cpu.decode.FEW", 3)
    ours, plain = pair("Llama")
    compiled, rows = decoder_of(ours), []
    ours.backend.decoder = Counted(compiled, rows)
    assert_same(run(ours, PROMPTS[:6]), run(plain, PROMPTS[:6]))
    assert rows
    assert min(rows) >= 4
    rows.clear()
    assert_same(run(ours, PROMPTS[:3]), run(plain, PROMPTS[:3]))
    assert rows == []


class Counted:
    """A compiled pass that notes how many rows it is asked for."""

    def __init__(self, compiled: Any, rows: list[int]) -> None:
        self.compiled, self.rows, self.least = compiled, rows, compiled.least

    def __call__(self, tokens: torch.Tensor, *rest: Any) -> torch.Tensor:
        self.rows.append(len(tokens))
        return self.compiled(tokens, *rest)


def test_a_model_of_another_form_is_left_to_the_library() -> None:
    model = make_model("Llama")

    def doubled(module: Any, args: Any, output: Any) -> Any:
        return output * 2

    model.model.layers[1].mlp.register_forward_hook(doubled)
    assert decoder_of(Engine(model, decode=str)) is None


def test_a_model_that_sees_decodes_after_images(tmp_path: Path) -> None:
    SCRATCH["scratch_vision"].save(tmp_path, 0)
    model, renderer = load_model(str(tmp_path), torch.float32), load_renderer(str(tmp_path))
    replace_modules(model)
    ours = Engine(model, decode=str)
    assert decoder_of(ours) is not None
    plain = Engine(copy.deepcopy(ours.model), decode=str)
    assert isinstance(plain.backend, CpuBackend)
    plain.backend.decoder = None
    images = pictures()
    prompts = [renderer.prompt([Message("user", f"{IMAGE_MARK}How many?" * n, images[:n])]) for n in (1, 2, 3, 1)]
    assert_same(run(ours, prompts), run(plain, prompts))
