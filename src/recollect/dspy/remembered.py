"""Answers of a policy that DSPy's cache keeps. A killed optimisation that starts again asks only what is new."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import dspy

from recollect.dspy.call_budget import CallBudget
from recollect.types import Completion, Message, Sampling


class Remembered:
    """A policy whose answers are kept and whose requests are counted.

    ``place`` says whose answers these are, since DSPy's cache does not know addresses.
    """

    def __init__(self, policy: Any, place: str, budget: CallBudget) -> None:
        self.policy, self.place, self.budget = policy, place, budget
        self._under_way: dict[str, asyncio.Future[Completion]] = {}
        if hasattr(policy, "chat"):
            self.chat = self._chat
        if hasattr(policy, "back"):  # it may go away for a while
            self.back = policy.back

    @property
    def window(self) -> int | None:
        return getattr(self.policy, "window", None)

    @property
    def loss(self) -> str:
        return str(self.policy.loss)

    @property
    def version(self) -> int:
        return int(self.policy.version)

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """The cached completion, or a new one."""
        key = self._key([*map(int, prompt_ids)], sampling)
        return await self._once(key, lambda: self.policy.generate(prompt_ids, sampling))

    async def _chat(self, log: Sequence[Any], tools: Any, sampling: Sampling) -> Completion:
        shown = [[m.role, m.content] if isinstance(m, Message) else ["assistant", m.text] for m in log]
        return await self._once(self._key([shown, tools], sampling), lambda: self.policy.chat(log, tools, sampling))

    async def _once(self, key: dict[str, Any], ask: Callable[[], Awaitable[Completion]]) -> Completion:
        """What is asked several times at once is asked once."""
        if (kept := self._kept(key)) is not None:
            return kept
        name = key["asked"]
        if name in self._under_way:
            self.budget.spare()
            return await asyncio.shield(self._under_way[name])
        self.budget.take()
        self._under_way[name] = asked = asyncio.ensure_future(self._asked(key, ask))
        asked.add_done_callback(lambda done: self._under_way.pop(name, None))
        return await asyncio.shield(asked)  # an attempt whose time is over takes it from nobody else

    async def _asked(self, key: dict[str, Any], ask: Callable[[], Awaitable[Completion]]) -> Completion:
        return self._keep(key, await ask())

    def _key(self, asked: Any, sampling: Sampling) -> dict[str, Any]:
        named = replace(sampling, key=sampling.key if sampling.temperature else "", keep=False)
        text = json.dumps([asked, repr(named)], ensure_ascii=False)
        return {"place": self.place, "asked": hashlib.sha256(text.encode(errors="replace")).hexdigest()}

    def _kept(self, key: dict[str, Any]) -> Completion | None:
        found = dspy.cache.get(dict(key))
        if found is None:
            return None
        self.budget.spare()
        return Completion(tuple(found["ids"]), tuple(found["logprobs"]), found["stop"], found["version"], found["text"])

    def _keep(self, key: dict[str, Any], done: Completion) -> Completion:
        row = {name: getattr(done, name) for name in ("stop", "version", "text")}
        dspy.cache.put(dict(key), {**row, "ids": list(done.ids), "logprobs": list(done.logprobs)})
        return done
