"""What stands before a conversation without a system message: the system prompt and turns of agent.prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recollect.agents.first_prompt import SYSTEM
from recollect.agents.wording import question_turns
from recollect.config import Config
from recollect.config.prompt_file import given_wording, prompt_specs
from recollect.types import BadInput

MessageRows = list[dict[str, str]]


def opening_of(cfg: Config, asked: bool) -> MessageRows:
    """The messages of the agent's system prompt; ``asked``: somebody wants them, so none at all is an error."""
    if not cfg.agent.prompts:
        return []
    said = given_wording(cfg, SYSTEM) if SYSTEM in prompt_specs(cfg) else None
    if said is None or "{tools}" in said.text:
        if asked:
            raise BadInput(
                f"agent.prompts={cfg.agent.prompts}: a server takes a system prompt without "
                "{tools}, such as agent.agent_type=chat has; the prompts of other turns are for train, eval and ask"
            )
        return []
    system = [{"role": "system", "content": said.text}] if said.text else []
    return [*system, *({"role": m.role, "content": m.content} for m in question_turns(said))]


def opened(body: dict[str, Any], opening: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """A request with the opening before its messages, unless it has a system message of its own."""
    rows = body.get("messages")
    if not opening or not isinstance(rows, list) or any(_is_system(row) for row in rows):
        return body
    return {**body, "messages": [*map(dict, opening), *rows]} if rows else body


def _is_system(row: Any) -> bool:
    return isinstance(row, dict) and row.get("role") in ("system", "developer")
