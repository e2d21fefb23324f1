"""How many tokens of text a prompt has room for, beside what stands around it."""

from __future__ import annotations

from collections.abc import Sequence

from recollect.agents.session import Session
from recollect.config import Config
from recollect.types import Message

MEET = 2  # tokens to spare where texts meet


def prompt_room(frame: Sequence[Message], session: Session, cfg: Config, role: str = "qa") -> int:
    """Tokens that fit into a prompt of data.max_prompt_length, the window and agent.max_context_length."""
    bound, said = session.binding(role), session.sampling.max_tokens
    limits = [n - said for n in (getattr(bound.policy, "window", None), cfg.agent.max_context_length) if n]
    used = len(bound.renderer.prompt(frame)) + MEET
    room = min([cfg.data.max_prompt_length, *limits]) - used
    if room <= 0:
        raise ValueError("the question alone fills the window; lower data.max_response_length")
    return room
