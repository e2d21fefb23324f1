"""The engine against the library: identical greedy ids, equal log-probabilities, in every way requests can share."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.engine import Engine
from recollect.engine.cpu.cpu_backend import CpuBackend
from recollect.engine.plain import PlainBackend
from recollect.types import BadInput, Completion, Sampling
from tests.conftest import ARCHITECTURES, make_pair

NEW = 10


def ids(seed: int, length: int) -> list[int]:
    return torch.randint(3, 96, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def run(engine: Engine, prompts: list[list[int]], **options: Any) -> list[Completion]:
    async def go() -> list[Completion]:
        options.setdefault("max_tokens", NEW)
        jobs = [engine.generate(p, Sampling(key=str(i), **options)) for i, p in enumerate(prompts)]
        return await asyncio.gather(*jobs)

    return asyncio.run(go())


def reference_ids(model: Any, prompt: list[int], count: int = NEW) -> list[int]:
    out = model.generate(
        torch.tensor([prompt]),
        max_new_tokens=count,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
        use_cache=True,
    )
    return out[0, len(prompt) :].tolist()


def reference_logprobs(model: Any, prompt: list[int], done: Completion, temperature: float = 1.0) -> torch.Tensor:
    with torch.no_grad():
        logits = model(torch.tensor([prompt + list(done.ids)])).logits[0, len(prompt) - 1 : -1] / temperature
    return logits.log_softmax(-1).gather(-1, torch.tensor(done.ids)[:, None])[:, 0]


CASES = {
    "distinct": lambda: [ids(i, 20 + 7 * i) for i in range(5)],
    "identical": lambda: [ids(1, 45)] * 4 + [ids(2, 60)] * 3,
    "shared beginning": lambda: [ids(1, 50) + ids(10 + i, 3 + i) for i in range(4)] + [ids(3, 9)],
    "longer than one step": lambda: [ids(1, 400), ids(1, 300) + ids(9, 80), ids(2, 330)],
    "one token": lambda: [[5], [5], [7]],
}


@pytest.mark.parametrize("kind", ARCHITECTURES)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("compiled", [True, False])
def test_greedy_equals_generate(kind: str, case: str, compiled: bool) -> None:
    plain, ours = make_pair(kind)
    backend = None if compiled else PlainBackend(ours)
    engine = Engine(ours, decode=str, max_batched_tokens=128, backend=backend)
    if compiled and not isinstance(engine.backend, CpuBackend):
        pytest.skip("there is no compiler here")
    prompts = CASES[case]()
    for prompt, done in zip(prompts, run(engine, prompts, temperature=0.0), strict=True):
        assert list(done.ids) == reference_ids(plain, prompt)
        expected = reference_logprobs(plain, prompt, done)
        torch.testing.assert_close(torch.tensor(done.logprobs), expected, atol=1e-4, rtol=0)


def test_compiled_attention_in_bfloat16_equals_the_operations_of_torch() -> None:
    _, ours = make_pair("Qwen3")
    ours.bfloat16()
    engines = [Engine(ours, decode=str), Engine(ours, decode=str, backend=PlainBackend(ours))]
    if not isinstance(engines[0].backend, CpuBackend):
        pytest.skip("there is no compiler here")
    prompts = [ids(1, 50) + ids(10 + i, 3 + i) for i in range(20)] + [ids(30 + i, 5 + 40 * i) for i in range(4)]
    first, second = (run(e, prompts, temperature=0.0, max_tokens=1) for e in engines)
    found, expected = (torch.tensor([d.logprobs[0] for d in done]) for done in (first, second))
    torch.testing.assert_close(found, expected, atol=0.05, rtol=0)


def test_prompts_of_one_request_do_not_fill_the_prefix_cache() -> None:
    _, ours = make_pair("Qwen3")
    engine = Engine(ours, decode=str)
    run(engine, [ids(i, 100) for i in range(5)])
    assert engine.scheduler.prefixes.tokens == 0
    run(engine, [ids(1, 100)] * 2)
    assert engine.scheduler.prefixes.tokens == 99


def test_shared_prompts_are_computed_once() -> None:
    _, ours = make_pair("Qwen3")
    engine = Engine(ours, decode=str)
    run(engine, [ids(1, 100)] * 8)
    assert engine.stats.prompt_tokens == 800
    assert engine.stats.computed_prompt_tokens == 99 + 8
    run(engine, [ids(1, 100)] * 2)  # the prefix cache still has it
    assert engine.stats.computed_prompt_tokens == 99 + 10
    engine.new_weights(1)  # but not for other weights
    run(engine, [ids(1, 100)] * 2)
    assert engine.stats.computed_prompt_tokens == 99 + 10 + 99 + 2


def test_a_late_sibling_shares_with_a_running_row() -> None:
    plain, ours = make_pair("Qwen3")
    engine = Engine(ours, decode=str)
    prompt = ids(4, 80)

    async def go() -> list[Completion]:
        options = {"temperature": 0.0, "max_tokens": 30}
        first = asyncio.ensure_future(engine.generate(prompt, Sampling(key="a", **options)))
        for _ in range(6):
            await asyncio.sleep(0)
        second = asyncio.ensure_future(engine.generate(prompt[:60] + ids(8, 9), Sampling(key="b", **options)))
        return [await first, await second]

    first, second = asyncio.run(go())
    assert engine.stats.computed_prompt_tokens == 80 + 9
    assert list(first.ids) == reference_ids(plain, prompt, 30)
    assert list(second.ids) == reference_ids(plain, prompt[:60] + ids(8, 9), 30)


def test_a_conversation_reuses_its_turns() -> None:
    plain, ours = make_pair("Llama")
    engine = Engine(ours, decode=str)
    prompt = ids(4, 40)
    first = run(engine, [prompt], temperature=0.0, keep=True)[0]
    longer = prompt + list(first.ids) + ids(5, 6)
    before = engine.stats.computed_prompt_tokens
    second = run(engine, [longer], temperature=0.0)[0]
    assert engine.stats.computed_prompt_tokens - before == 7  # the last sampled token and the new ones
    assert list(second.ids) == reference_ids(plain, longer)


def test_requests_join_and_leave_between_steps() -> None:
    plain, ours = make_pair("Qwen2")
    engine = Engine(ours, decode=str, max_rows=3)
    prompts = [ids(i, 12 + i) for i in range(9)]

    async def go() -> list[Completion]:
        async def one(i: int) -> Completion:
            for _ in range(3 * i):
                await asyncio.sleep(0)
            return await engine.generate(prompts[i], Sampling(temperature=0.0, max_tokens=4 + i, key=str(i)))

        return await asyncio.gather(*(one(i) for i in range(9)))

    for i, done in enumerate(asyncio.run(go())):
        assert list(done.ids) == reference_ids(plain, prompts[i], 4 + i)
    assert engine.stats.peak_rows <= 3


@settings(max_examples=15, deadline=None)
@given(order=st.permutations(range(6)), rows=st.integers(1, 8), tokens=st.sampled_from([32, 64, 512]))
def test_samples_do_not_depend_on_batching(order: list[int], rows: int, tokens: int) -> None:
    _, ours = make_pair("Qwen3")
    prompts = [ids(1, 40) + ids(7, 1 + i % 3) for i in range(3)] + [ids(20 + i, 25) for i in range(3)]

    async def go(engine: Engine, which: list[int]) -> dict[int, tuple[int, ...]]:
        jobs = {i: engine.generate(prompts[i], Sampling(key=f"k{i}", seed=3, max_tokens=6)) for i in which}
        done = await asyncio.gather(*jobs.values())
        return {i: d.ids for i, d in zip(jobs, done, strict=True)}

    alone = {i: asyncio.run(go(Engine(ours, decode=str), [i]))[i] for i in range(6)}
    together = asyncio.run(go(Engine(ours, decode=str, max_rows=rows, max_batched_tokens=tokens), list(order)))
    assert together == alone


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.5])
def test_logprobs_are_at_the_sampling_temperature(temperature: float) -> None:
    plain, ours = make_pair("Qwen3")
    prompt = ids(2, 30)
    done = run(Engine(ours, decode=str), [prompt], temperature=temperature)[0]
    expected = reference_logprobs(plain, prompt, done, temperature)
    torch.testing.assert_close(torch.tensor(done.logprobs), expected, atol=1e-4, rtol=0)


def test_sampling_follows_the_distribution() -> None:
    plain, ours = make_pair("Qwen3")
    prompt = ids(2, 20)
    drawn = [d.ids[0] for d in run(Engine(ours, decode=str, max_rows=512), [prompt] * 4000, max_tokens=1)]
    with torch.no_grad():
        probs = plain(torch.tensor([prompt])).logits[0, -1].softmax(-1)
    counts = torch.bincount(torch.tensor(drawn), minlength=96).float() / len(drawn)
    assert (counts - probs).abs().sum() < 0.15


@pytest.mark.parametrize(("top_k", "top_p"), [(3, 1.0), (-1, 0.5), (5, 0.6)])
def test_truncation_keeps_the_right_tokens(top_k: int, top_p: float) -> None:
    plain, ours = make_pair("Qwen3")
    prompt = ids(2, 20)
    done = run(Engine(ours, decode=str, max_rows=512), [prompt] * 600, max_tokens=1, top_k=top_k, top_p=top_p)
    with torch.no_grad():
        probs, order = plain(torch.tensor([prompt])).logits[0, -1].softmax(-1).sort(descending=True)
    if top_k > 0:
        probs = probs[:top_k] / probs[:top_k].sum()
    count = int((probs.cumsum(0) - probs < top_p).sum())
    assert {d.ids[0] for d in done} <= set(order[:count].tolist())


def test_stop_ids_strings_and_limits() -> None:
    plain, ours = make_pair("Qwen3")
    prompt = ids(2, 20)
    free = reference_ids(plain, prompt, 12)
    engine = Engine(ours, decode=lambda i: "".join(chr(97 + t % 26) for t in i))
    cut = run(engine, [prompt], temperature=0.0, max_tokens=12, stop_ids=(free[3],))[0]
    assert list(cut.ids) == free[: free.index(free[3]) + 1]
    assert cut.stop == "stop"
    word = engine.decode(free[2:5])
    said = run(engine, [prompt], temperature=0.0, max_tokens=12, stop=(word,))[0]
    assert said.text.endswith(word)
    assert said.stop == "stop"
    short = run(engine, [prompt], temperature=0.0, max_tokens=4)[0]
    assert (short.stop, len(short.ids)) == ("length", 4)


def test_cancelled_requests_leave_and_the_rest_go_on() -> None:
    plain, ours = make_pair("Qwen3")
    engine = Engine(ours, decode=str)
    prompt = ids(2, 20)

    async def go() -> Completion:
        doomed = asyncio.ensure_future(engine.generate(prompt, Sampling(max_tokens=500)))
        kept = asyncio.ensure_future(engine.generate(prompt, Sampling(temperature=0.0, max_tokens=NEW)))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(doomed, 0.02)
        return await kept

    assert list(asyncio.run(go()).ids) == reference_ids(plain, prompt)
    assert not engine.busy


def test_errors_reach_the_caller_and_the_engine_survives() -> None:
    plain, ours = make_pair("Qwen3")
    engine = Engine(ours, decode=str)
    with pytest.raises(ValueError, match="window of 2048"):
        run(engine, [ids(1, 2040)], max_tokens=100)
    with pytest.raises(ValueError, match="empty prompt"):
        run(engine, [[]])
    with pytest.raises(IndexError):
        run(engine, [[5, 10_000]])
    assert list(run(engine, [ids(1, 9)], temperature=0.0)[0].ids) == reference_ids(plain, ids(1, 9))


def test_errors_reach_requests_that_were_about_to_join(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, ours = make_pair("Qwen3")
    engine = Engine(ours, decode=str)

    def full(*_: int) -> None:
        raise MemoryError("no room")

    async def go() -> None:
        await asyncio.wait_for(engine.generate(ids(1, 9), Sampling()), 5)

    with monkeypatch.context() as patched:
        patched.setattr(engine.backend.cache, "ensure", full)
        with pytest.raises(MemoryError, match="no room"):
            asyncio.run(go())
    assert list(run(engine, [ids(1, 9)], temperature=0.0)[0].ids) == reference_ids(plain, ids(1, 9))


@pytest.mark.parametrize("freed", [False, True])
def test_new_weights_after_a_loop_that_ended_early(freed: bool) -> None:
    plain, ours = make_pair("Qwen3")
    engine = Engine(ours, decode=str)

    async def go() -> None:
        for i in range(3):
            asyncio.ensure_future(engine.generate(ids(i, 100), Sampling(max_tokens=500)))  # noqa: RUF006
        while len(engine.state.requests) < 3:
            await asyncio.sleep(0)
        raise BadInput("an agent's")

    with pytest.raises(BadInput):
        asyncio.run(go())
    assert not engine.busy
    engine.new_weights(1)
    if freed:
        engine.free()
    assert list(run(engine, [ids(1, 9)], temperature=0.0)[0].ids) == reference_ids(plain, ids(1, 9))


@pytest.mark.filterwarnings("ignore")  # about tasks that were left
def test_a_loop_that_was_closed_with_requests_under_way() -> None:
    plain, ours = make_pair("Qwen3")
    engine, loop = Engine(ours, decode=str), asyncio.new_event_loop()
    engine.handover = 1

    async def leaves() -> list[Any]:
        left = [asyncio.ensure_future(engine.generate(ids(i, 9), Sampling(max_tokens=3 + i // 3))) for i in range(6)]
        while len(engine._done) < 2:
            await asyncio.sleep(0)
        return left

    left = loop.run_until_complete(leaves())
    assert engine.busy
    loop.close()
    assert not engine.busy
    for _ in range(2):
        assert list(run(engine, [ids(1, 9)], temperature=0.0)[0].ids) == reference_ids(plain, ids(1, 9))
    assert not all(task.done() for task in left)


@pytest.mark.parametrize("most", [1, 2, 100])
def test_completions_that_nobody_has_been_told_of(most: int) -> None:
    plain, ours = make_pair("Qwen3")
    engine = Engine(ours, decode=str)
    engine.handover = most

    async def go() -> list[Any]:
        asked = [engine.generate(ids(i, 9), Sampling(max_tokens=4, temperature=0.0)) for i in range(5)]
        jobs = [asyncio.ensure_future(x) for x in asked]
        while most < 5 and not engine._done:
            await asyncio.sleep(0)
        if most < 5:
            assert engine.busy
            with pytest.raises(AssertionError, match="while nothing is being generated"):
                engine.new_weights(1)
            next(request for request, _ in engine._done).future.cancel()
        return await asyncio.gather(*jobs, return_exceptions=True)

    made = asyncio.run(go())
    told = [(i, m) for i, m in enumerate(made) if not isinstance(m, BaseException)]
    assert len(told) == (5 if most == 100 else 4)
    assert all(list(m.ids) == reference_ids(plain, ids(i, 9), 4) for i, m in told)
    assert not engine.busy


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_compiled_modules_take_the_place_of_equal_ones_only(kind: str) -> None:
    plain, ours = make_pair(kind)
    engine = Engine(ours, decode=str)
    if not isinstance(engine.backend, CpuBackend):
        pytest.skip("there is no compiler here")
    replaced = {n for n, m in ours.named_modules() if type(m) is not type(plain.get_submodule(n))}
    assert "model.norm" in replaced
    assert ("model.layers.0.mlp" in replaced) == (not kind.startswith("Gemma"))  # Gemma's gate is a GELU
    x = torch.randn(7, 48)
    with torch.no_grad():
        torch.testing.assert_close(ours.model.norm(x), plain.model.norm(x), atol=1e-5, rtol=1e-5)
    loss = ours.model.norm(x.requires_grad_()).square().sum()
    assert loss.requires_grad  # training keeps the library's own


def test_a_new_prefix_is_never_taken_for_one_that_is_gone() -> None:
    plain, ours = make_pair("Qwen3")
    engine = Engine(ours, decode=str, prefix_cache_tokens=620, backend=PlainBackend(ours))
    short = Sampling(max_tokens=3, temperature=0.0)

    async def go() -> None:
        other = asyncio.ensure_future(engine.generate(ids(1, 300), Sampling(max_tokens=500)))
        for i in range(30):
            prompt = ids(100 + i, 300)
            done = await engine.generate(prompt, short)
            assert list(done.ids) == reference_ids(plain, prompt, 3)
            await engine.generate(
                ids(1000 + i, 60), Sampling(max_tokens=3, keep=True)
            )  # what it keeps evicts the one before
        other.cancel()

    asyncio.run(go())


def test_more_stop_tokens_than_a_row_has_room_for() -> None:
    """They are all looked for, however many there are."""
    engine = Engine(make_pair("Qwen3")[1], decode=str)
    (free,) = run(engine, [ids(1, 20)], temperature=0.0)
    stops = (*range(200, 219), free.ids[3])
    (done,) = run(engine, [ids(1, 20)], temperature=0.0, stop_ids=stops)
    assert done.ids == free.ids[: free.ids.index(free.ids[3]) + 1]
    assert done.stop == "stop"
    assert [d.ids for d in run(engine, [ids(1, 20)], temperature=0.0)] == [free.ids]
