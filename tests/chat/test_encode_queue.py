"""Texts that are asked for at the same moment are tokenised in one call, and come out as they do one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from recollect.chat import Renderer
from recollect.chat.encode_queue import HOPS, EncodeQueue


def letters(texts: Sequence[str]) -> list[list[int]]:
    return [[ord(c) for c in text] for text in texts]


def test_one_call_for_all_who_ask_at_once() -> None:
    calls: list[list[str]] = []

    def encode(texts: Sequence[str]) -> list[list[int]]:
        calls.append(list(texts))
        return letters(texts)

    async def ask() -> list[list[int]]:
        queue = EncodeQueue(encode)
        first = await asyncio.gather(*(queue.ids(text) for text in ("a", "b", "a")))
        return [*first, await queue.ids("c")]

    assert asyncio.run(ask()) == [[97], [98], [97], [99]]
    assert calls == [["a", "b", "a"], ["c"]]


def test_whoever_goes_on_has_asked_again_after_so_many_rounds() -> None:
    """The engine waits for them: a request that comes a round late would miss the step."""

    async def rounds() -> int:
        queue, woken, asked = EncodeQueue(letters), asyncio.get_running_loop().create_future(), []

        async def agent() -> None:
            await woken
            asked.append(await queue.ids("x"))

        task = asyncio.create_task(agent())
        await asyncio.sleep(0)
        woken.set_result(None)
        for done in range(10):
            await asyncio.sleep(0)
            if asked:
                await task
                return done + 1
        raise AssertionError("it never asked")

    assert asyncio.run(rounds()) == HOPS


def test_a_text_that_cannot_be_tokenised_fails_alone() -> None:
    def encode(texts: Sequence[str]) -> list[list[int]]:
        if "bad" in texts:
            raise ValueError("no such text")
        return letters(texts)

    async def ask() -> list[object]:
        queue = EncodeQueue(encode)
        return await asyncio.gather(*(queue.ids(t) for t in ("a", "bad", "b")), return_exceptions=True)

    first, broken, last = asyncio.run(ask())
    assert (first, last) == ([97], [98])
    assert isinstance(broken, ValueError)


def test_a_caller_that_is_gone_and_a_loop_that_has_ended_hold_nobody_up() -> None:
    queue = EncodeQueue(letters)

    async def leaves() -> None:
        task = asyncio.create_task(queue.ids("a"))
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(leaves())
    assert asyncio.run(queue.ids("b")) == [98]


@pytest.mark.parametrize("long", [False, True])
def test_the_ids_are_those_of_each_text_alone(renderer: Renderer, long: bool) -> None:
    texts = ["the key", "", "the key", "a longer text, " * (400 if long else 3), "größer 😀"]
    alone = [Renderer(renderer.tokenizer).encode(text) for text in texts]
    assert renderer.encode_all(texts) == alone
