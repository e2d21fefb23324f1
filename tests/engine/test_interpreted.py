"""The GPU's engine without a GPU: its own code, its kernels interpreted, its graphs run again instead of replayed.

`make test-kernels` installs triton and runs this; where there is a GPU, test_cuda.py says the same of the real thing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

if torch.cuda.is_available():
    pytest.skip("a GPU runs the kernels themselves", allow_module_level=True)
os.environ.setdefault("TRITON_INTERPRET", "1")
pytest.importorskip("triton")

from recollect.engine import Engine
from recollect.engine.cuda import attention_kernels as kernels
from recollect.engine.cuda import cuda_backend, device_cache, flash_prefill
from recollect.engine.cuda import prefix_pieces as share
from recollect.engine.cuda.cuda_backend import CudaBackend
from recollect.engine.cuda.device_cache import DeviceCache
from recollect.engine.cuda.device_rows import NUMBERS, DeviceRows
from recollect.engine.cuda.graph_pool import GraphPool
from recollect.engine.cuda.sampling_kernels import SHIFT
from recollect.engine.request import EngineRequest
from recollect.engine.row_state import RowState
from recollect.models.attention import using
from recollect.models.compiled import compile_layers
from recollect.types import Completion, Sampling
from tests.compiling import compiling_lightly
from tests.engine.test_batching import CASES, ids, run
from tests.engine.test_layers import make
from tests.engine.test_masks import asked, run_all
from tests.engine.test_prefill import attend_plainly

EXACT = {"atol": 2e-4, "rtol": 0}
SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 32}


class Again:
    """What a captured graph is here."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.work, self.replays = work, 0

    def replay(self) -> None:
        self.replays += 1
        self.work()


class Nothing:
    """Events and streams: all work is done when a call returns."""

    def __init__(self, enable_timing: bool = False) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: Any) -> float:
        return 1.0

    def __getattr__(self, name: str) -> Any:
        return lambda *args: None


def run_again(pool: GraphPool, work: Callable[[], object]) -> Any:
    """Capture a graph: run the work once, and again for every replay."""
    work()
    return Again(work)


def interpreted(model: Any, max_rows: int = 256, row_bytes: int | None = None, **more: Any) -> Engine:
    """An engine with the GPU's backend."""
    return Engine(model, str, max_rows, backend=CudaBackend(model, max_rows, row_bytes=row_bytes), **more)


def backend_of(engine: Engine) -> CudaBackend:
    """The GPU's backend."""
    assert isinstance(engine.backend, CudaBackend)
    return engine.backend


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("Event", "Stream", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, Nothing)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *args: None)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    for name in ("zeros", "ones"):
        monkeypatch.setattr(torch, name, pageable(getattr(torch, name)))
    monkeypatch.setattr(GraphPool, "capture", run_again)
    monkeypatch.setattr(flash_prefill, "takes", lambda *args: True)
    monkeypatch.setattr(flash_prefill, "attend_lengths", attend_padded)
    monkeypatch.setattr(cuda_backend, "LONG", 40)
    for module in (kernels, share):
        monkeypatch.setattr(module, "PROGRAMS", 4)


def attend_padded(q: Any, k: Any, v: Any, scale: float, q_ends: Any, k_ends: Any, *rest: Any) -> Any:
    """As the GPU's call: tokens after the last sequence are left alone, whatever is there."""
    real, seen = int(q_ends[-1]), int(k_ends[-1])
    out, total = torch.full_like(q, float("nan")), torch.full((q.shape[1], q.shape[0]), float("nan"))
    out[:real], total[:, :real] = attend_plainly(q[:real], k[:seen], v[:seen], scale, q_ends, k_ends, *rest)
    return out, total


def pageable(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same without pinned memory."""
    return lambda *args, pin_memory=False, **more: function(*args, **more)


def expected(model: Any, prompt: list[int], done: Completion) -> torch.Tensor:
    """Log-probabilities of all tokens by the library; its first choice must be what was sampled greedily."""
    every = torch.tensor([*prompt, *done.ids])

    class Causal:
        keep, total = None, len(every)

        def attend(self, layer: int, q: Any, k: Any, v: Any, scoring: Any) -> Any:
            ends = torch.tensor([0, len(every)])
            heads = (x.transpose(0, 1) for x in (q, k, v))
            return attend_plainly(*heads, scoring.scale, ends, ends, len(every), len(every), True)[0]

    with torch.inference_mode(), using(Causal()):
        logits = model(input_ids=every[None], position_ids=torch.arange(len(every))[None], use_cache=False).logits[0]
    return logits[len(prompt) - 1 : -1].log_softmax(-1)


def check(model: Any, asked: list[list[int]], made: list[Completion]) -> None:
    """Completions that were sampled greedily against the library."""
    for prompt, done in zip(asked, made, strict=True):
        assert done.ids
        right = expected(model, prompt, done)
        assert list(done.ids) == right.argmax(-1).tolist()
        torch.testing.assert_close(torch.tensor(done.logprobs), right.amax(-1), **EXACT)


@pytest.fixture
def model() -> Any:
    return make("Qwen3", **SMALL, num_key_value_heads=1)


def test_it_is_the_path_that_a_gpu_takes(model: Any) -> None:
    there = interpreted(model)
    assert backend_of(there).layers is not None
    assert backend_of(there).flash


def test_the_gpu_s_time_is_added_up(model: Any) -> None:
    there = interpreted(model)
    assert there.statistics().gpu_seconds == 0.0
    run(there, [ids(0, 30)], temperature=0.0, max_tokens=5)
    assert there.statistics().gpu_seconds == pytest.approx(0.001 * 6)  # a prefill and five steps of a millisecond


@pytest.mark.parametrize("case", CASES)
def test_greedy_equals_the_library(model: Any, case: str) -> None:
    there, asked = interpreted(model, max_batched_tokens=128), CASES[case]()
    for _ in range(2):  # the second time prefixes are known
        check(model, asked, run(there, asked, temperature=0.0, max_tokens=5))
    assert backend_of(there).graphs or len(asked) < 3


def test_long_prompts_under_a_graph(model: Any) -> None:
    there = interpreted(model)
    for turn in range(3):
        asked = [ids(3 * turn, 60 + turn)]
        check(model, asked, run(there, asked, temperature=0.0, max_tokens=3))
    for turn in range(3):
        asked = [ids(20 + turn, 90), ids(30 + turn, 70 + turn)]
        check(model, asked, run(there, asked, temperature=0.0, max_tokens=3))
    captured: Any = backend_of(there).prefill_graphs
    assert {size: graph.replays for size, graph in captured.items()} == {128: 3, 256: 3}
    there.free()
    assert not backend_of(there).prefill_graphs
    check(model, asked, run(there, asked, temperature=0.0, max_tokens=3))


def test_forms_are_kept(model: Any) -> None:
    prompts = [ids(1, 30)] * 3 + [ids(2, 12)]
    for options in ({}, {"temperature": 0.0}):
        samplings = asked(len(prompts), **options)
        for _ in range(2):
            for sampling, done in zip(samplings, run_all(interpreted(model), prompts, samplings), strict=True):
                assert sampling.grammar is None or (len(done.ids), done.stop) == (6, "stop")
        there, here = (run_all(e, prompts, samplings) for e in (interpreted(model), Engine(model, str)))
        for made, other in zip(there, here, strict=True):
            assert made.ids == other.ids
            torch.testing.assert_close(torch.tensor(made.logprobs), torch.tensor(other.logprobs), **EXACT)


@pytest.mark.parametrize("length", [1, 30, 60])
@pytest.mark.parametrize("count", [1, 2])
def test_few_tokens(model: Any, length: int, count: int) -> None:
    there, asked = interpreted(model), [ids(1, length)] * 2
    for _ in range(2):
        made = run(there, asked, temperature=0.0, max_tokens=count)
        assert [len(done.ids) for done in made] == [count, count]
        check(model, asked, made)


def test_no_step_is_launched_after_the_last(model: Any) -> None:
    there, asked = interpreted(model), [ids(1, 60)]
    launched: list[int] = []
    backend = backend_of(there)
    launch = backend._launch
    backend._launch = lambda state: launched.append(1) or launch(state)  # type: ignore[func-returns-value,method-assign,return-value]
    run(there, asked, temperature=0.0, max_tokens=4)
    assert len(launched) == 4


def test_samples_and_stops_equal_those_of_any_other_batch(model: Any) -> None:
    asked = [ids(1, 60), ids(1, 60), ids(2, 9), ids(3, 50) + ids(4, 5)]
    every: list[dict[str, Any]] = [{}, {"top_p": 0.7}, {"top_k": 4, "temperature": 0.8}]
    for options in every:
        together = run(interpreted(model), asked, seed=3, max_tokens=6, **options)
        for i, prompt in enumerate(asked):
            alone = run(interpreted(model), [prompt] * (i + 1), seed=3, max_tokens=6, **options)
            assert alone[i].ids == together[i].ids
            torch.testing.assert_close(torch.tensor(alone[i].logprobs), torch.tensor(together[i].logprobs), **EXACT)
    stop = together[0].ids[2]
    stopped = run(interpreted(model), asked, seed=3, max_tokens=6, stop_ids=(stop,), **options)
    for whole, cut in zip(together, stopped, strict=True):
        end = whole.ids.index(stop) + 1 if stop in whole.ids else 6
        assert cut.ids == whole.ids[:end]
        assert cut.stop == ("stop" if stop in whole.ids else "length")


def test_a_conversation_goes_on_from_what_was_kept(model: Any) -> None:
    there, first = interpreted(model), ids(1, 60)
    (done,) = run(there, [first], temperature=0.0, max_tokens=5, keep=True)
    before = there.stats.computed_prompt_tokens
    asked = [[*first, *done.ids, 7, 8]]
    check(model, asked, run(there, asked, temperature=0.0, max_tokens=4))
    assert there.stats.computed_prompt_tokens - before == 3  # the last sampled token and the new ones


def test_requests_that_nobody_awaits_leave(model: Any) -> None:
    there = interpreted(model)

    async def go() -> Completion:
        jobs = [
            asyncio.ensure_future(there.generate(ids(i, 60), Sampling(key=str(i), max_tokens=12, temperature=0.0)))
            for i in range(3)
        ]
        for _ in range(100):
            if there.stats.steps == 4:
                break
            await asyncio.sleep(0)
        assert len(there.state.requests) == 3
        jobs[0].cancel()
        await asyncio.sleep(0)
        there.step()
        assert len(there.state.requests) == 2
        return await jobs[2]

    check(model, [ids(2, 60)], [asyncio.run(go())])
    asked = [ids(5, 60)]
    check(model, asked, run(there, asked, temperature=0.0, max_tokens=3))


def test_an_error_in_a_step_is_forgotten(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    there, asked = interpreted(model), [ids(1, 60), ids(2, 12)]
    flush = there.backend.flush

    def fails(*args: Any) -> None:
        if there.stats.steps >= 2:
            raise RuntimeError("no luck")
        flush(*args)

    monkeypatch.setattr(there.backend, "flush", fails)
    with pytest.raises(RuntimeError, match="no luck"):
        run(there, asked, temperature=0.0, max_tokens=6)
    monkeypatch.setattr(there.backend, "flush", flush)
    check(model, asked, run(there, asked, temperature=0.0, max_tokens=6))


@pytest.mark.parametrize("way", [{}, {"top_k": 96}], ids=["own kernel", "library"])
def test_rows_that_have_ended_stand_still(model: Any, way: dict[str, Any]) -> None:
    """A row ends on the device: the step that follows changes nothing of it, and the host is told how it ended."""
    there, asked = interpreted(model), [ids(1, 60), ids(2, 60)]
    free = run(there, asked, temperature=0.0, max_tokens=8, **way)
    results: list[list[int]] = []
    backend = backend_of(there)
    flush = backend.flush

    def watched(*args: Any) -> None:
        if backend._pending is not None:
            results.append(backend._pending.results[0, :2].tolist())  # slots 0 and 1
        flush(*args)

    backend.flush = watched  # type: ignore[method-assign]
    stop = next(t for t in free[0].ids[1:6] if t not in free[1].ids)
    done = run(there, asked, temperature=0.0, max_tokens=8, stop_ids=(*range(200, 219), stop), **way)
    assert done[0].ids == free[0].ids[: free[0].ids.index(stop) + 1]
    assert done[1].ids == free[1].ids
    ends = free[0].ids.index(stop)
    assert results[ends] == [stop + (1 << SHIFT), free[1].ids[ends]]
    assert results[ends + 1][0] == results[ends][0]  # launched before the host knew
    assert results[-1][1] == free[1].ids[7] + (2 << SHIFT)
    numbers = dict(zip(NUMBERS, backend.rows.kept[:, 1].tolist(), strict=True))
    assert (numbers["count"], numbers["position"], numbers["ended"]) == (8, 59 + 8, 2)


def test_more_prefixes_than_half_the_rows(model: Any) -> None:
    """Numbers of programs are rounded up to a power of two, numbers of rows to a multiple of 32."""
    state, made = RowState(70), DeviceRows(70, DeviceCache(1, 1, 8, torch.float32, torch.device("cpu")), 2)
    prefixes = [made.cache.new_prefix(torch.arange(40).numpy()) for _ in range(69)]
    for i in range(70):
        request = EngineRequest(torch.arange(41).numpy(), Sampling(max_tokens=5), i, None)  # type: ignore[arg-type]
        request.attach(prefixes[min(i, 68)], 40)
        state.add(request)
    made.kind = made.upload(state, np.arange(70))
    assert made.kind[:3] == (96, 16, 128)
    assert made.prefixes is not None
    assert made.bases[:69].tolist() == [p.memory.data_ptr() for p in prefixes]


def test_agents_go_on_a_few_at_a_time(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that end together are told together only so far as that does not keep the GPU waiting."""
    monkeypatch.setattr(CudaBackend, "handover", 2)
    there = interpreted(model)
    order: list[tuple[int, int]] = []

    async def ask(number: int) -> Completion:
        await there.generate(ids(number, 9), Sampling(key=str(number), max_tokens=3, temperature=0.0))
        order.append((number, there.stats.steps))
        again = Sampling(key=f"{number}/2", max_tokens=4, temperature=0.0)
        return await there.generate(ids(number + 10, 12), again)

    async def go() -> list[Completion]:
        return await asyncio.gather(*(ask(i) for i in range(5)))

    check(model, [ids(i + 10, 12) for i in range(5)], asyncio.run(go()))
    told = [step for _, step in order]
    assert sorted(number for number, _ in order) == list(range(5))
    assert [told.count(step) for step in sorted(set(told))] == [2, 2, 1]
    assert not there.busy


def test_nothing_is_sampled_while_prompts_are_read(model: Any) -> None:
    """A row's first token comes with its first step, so the host need not wait for what it reads."""
    there, kept = interpreted(model), []
    layers: Any = backend_of(there).layers
    prefill = layers.prefill
    layers.prefill = lambda *args: kept.append(prefill(*args)) or kept[-1]  # type: ignore[func-returns-value]
    asked = [ids(1, 60) + ids(5 + i, 7) for i in range(3)] + [ids(3, 1)]
    check(model, asked, run(there, asked, temperature=0.0, max_tokens=3))
    assert [len(x) for x in kept] == [0] * len(kept) != []
    assert there.stats.computed_prompt_tokens == 60 + 3 * 7 + 1


def test_a_large_models_layers_are_the_compiled_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a model is too wide for our kernels, prompts and rows go through the library's layers, compiled."""
    graphs = compiling_lightly(monkeypatch)
    compiled = make("Qwen2", **SMALL)
    there = interpreted(compiled, max_batched_tokens=64)
    backend_of(there).layers = None
    compile_layers(compiled)
    asked = [ids(1, 150), *(ids(2, 60) + ids(9 + i, 7) for i in range(3)), ids(4, 3)]
    for _ in range(2):
        check(make("Qwen2", **SMALL), asked, run(there, asked, temperature=0.0, max_tokens=5))
    assert graphs() > 0


@pytest.mark.parametrize(
    ("length", "new", "rows_of"), [(41, 24, None), (9, 8, 16)], ids=["as long as a row may own", "little memory"]
)
def test_slots_hold_what_rows_come_to_own(
    model: Any, length: int, new: int, rows_of: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of a prompt, and every sampled token that is computed, one of them before the host knows of the end."""
    monkeypatch.setattr(device_cache, "slot_length", lambda tokens: 1 << (tokens - 1).bit_length())
    each = interpreted(model).backend.cache.token_bytes
    there = interpreted(model, max_rows=4, row_bytes=rows_of and 4 * rows_of * each)
    asked = [ids(i, length) for i in range(4)]
    check(model, asked, run(there, asked, temperature=0.0, max_tokens=new))
    assert there.backend.cache.generation == 1, "the cache grew while rows were decoding"
    assert there.stats.peak_rows == (4 if rows_of is None else 2)


def test_longer_prompts_find_room_where_memory_is_ample(model: Any) -> None:
    """A cache that grew would have every graph captured again."""
    there = interpreted(model, max_rows=4, row_bytes=1 << 30)
    for length in (5, 300):
        asked = [ids(i, length) for i in range(2)]
        check(model, asked, run(there, asked, temperature=0.0, max_tokens=3))
    assert there.backend.cache.generation == 1
