"""A model of this process as the judge of answers: asked with messages, as an endpoint is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from recollect.agents.session import Conversation
from recollect.chat import Renderer
from recollect.samplers.sampler import Sampler
from recollect.types import Completion, Message, Sampling


@dataclass(frozen=True)
class FrozenJudge:
    """A sampler whose weights nobody trains, and its renderer."""

    sampler: Sampler
    renderer: Renderer

    async def chat(self, messages: Sequence[Message], tools: Any, sampling: Sampling) -> Completion:
        """Its reply."""
        prompt = Conversation(messages).upcoming(self.renderer)
        return await self.sampler.generate(prompt, replace(sampling, stop_ids=self.renderer.stop_ids, key="judge"))
