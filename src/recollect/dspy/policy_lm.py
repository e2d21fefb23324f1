"""A policy of ours as a language model of DSPy: in this process, or behind an endpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import dspy

from recollect.agents.first_prompt import fitted
from recollect.agents.rollout import ROUNDS
from recollect.agents.session import Binding, Conversation, Session
from recollect.policies.endpoint import EndpointDown, EndpointGone
from recollect.runtime.threads import LoopThread
from recollect.types import Completion, Message, Sampling

PROPOSAL = 256  # tokens of a text that a prompt model writes


@dataclass(frozen=True)
class TurnInSession:
    """The turn of an agent that a predictor is about to make."""

    session: Session
    role: str
    max_tokens: int | None


TURN: ContextVar[TurnInSession | None] = ContextVar("turn", default=None)


class PolicyLM(dspy.BaseLM):
    """Answers with a policy. Inside an agent's turn the session asks it; else it is asked with the messages alone."""

    def __init__(self, binding: Binding, thread: LoopThread, place: str, **kwargs: Any) -> None:
        super().__init__(model=f"recollect/{place}", **kwargs)
        self.binding, self.thread = binding, thread
        self.warn: Callable[[str], None] = lambda message: None
        self.on_loss: Callable[[str], None] = lambda why: None  # an endpoint went away for good

    def __deepcopy__(self, memo: object) -> PolicyLM:
        return self.copy()

    def forward(self, prompt: str | None = None, messages: Any = None, **kwargs: Any) -> Any:
        """A reply to messages, which are cut to the window: what a prompt model is asked."""
        rows = messages or [{"role": "user", "content": prompt or ""}]
        said = self.thread.wait(self._free([_message(row) for row in rows], {**self.kwargs, **kwargs}))
        return self._response(said)

    async def aforward(self, prompt: str | None = None, messages: Any = None, **kwargs: Any) -> Any:
        """A reply in an agent's turn."""
        turn, asked = TURN.get(), {**self.kwargs, **kwargs}
        rows = messages or [{"role": "user", "content": prompt or ""}]
        shown = [_message(row) for row in rows]
        return self._response(await (self._free(shown, asked) if turn is None else self._in_turn(turn, shown, asked)))

    async def _in_turn(self, turn: TurnInSession, messages: Sequence[Message], asked: Mapping[str, Any]) -> str:
        session, before = turn.session, (turn.session.sampling, turn.session.key)
        if asked.get("temperature"):
            session.sampling = replace(session.sampling, temperature=float(asked["temperature"]))
        session.key = f"{session.key}/{asked.get('rollout_id') or 0}"
        try:
            done = await session.generate(messages, role=turn.role, max_tokens=turn.max_tokens)
        finally:
            session.sampling, session.key = before
        return done.text

    async def _free(self, messages: list[Message], asked: Mapping[str, Any]) -> str:
        bound, most = self.binding, int(asked.get("max_tokens") or PROPOSAL)
        window = getattr(bound.policy, "window", None)
        most = min(most, window // 4) if window else most
        if window:
            messages = fitted(_merged(messages), bound.renderer, window - most, "center")
        temperature = float(asked.get("temperature") or 0.0)
        key = f"proposal/{asked.get('rollout_id') or 0}"
        sampling = Sampling(temperature, max_tokens=most, stop_ids=bound.renderer.stop_ids, key=key)
        return (await self._patient(messages, sampling)).text or "-"  # DSPy takes no empty reply

    async def _patient(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        """A completion, also of an endpoint that goes away for a while."""
        policy = self.binding.policy
        for _ in range(ROUNDS):
            try:
                return await self._complete(messages, sampling)
            except EndpointDown:
                if not await policy.back(self.warn):
                    break
        self.on_loss(policy.loss)
        raise EndpointGone(policy.loss)

    async def _complete(self, messages: Sequence[Message], sampling: Sampling) -> Completion:
        policy = self.binding.policy
        if self.binding.takes_messages:
            done: Completion = await policy.chat(list(messages), None, sampling)
            return done
        made: Completion = await policy.generate(Conversation(messages).upcoming(self.binding.renderer), sampling)
        return made

    def _response(self, text: str) -> Any:
        """The form of an answer that DSPy reads."""
        choice = SimpleNamespace(message=SimpleNamespace(content=text, tool_calls=None), finish_reason="stop")
        return SimpleNamespace(choices=[choice], usage={}, model=self.model)


def _message(row: Mapping[str, Any]) -> Message:
    content = row["content"]
    text = content if isinstance(content, str) else "\n".join(str(part.get("text", "")) for part in content)
    return Message(str(row["role"]), text)


def _merged(messages: Sequence[Message]) -> list[Message]:
    """All messages as one of the user's, of which the middle may be left out."""
    return [Message("user", "\n\n".join(m.content for m in messages))]
