"""AgentFly's `agent.*`, of which `init_args`, `init_config` and `run_config` are parts; MemAgent's `recurrent.*`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recollect.config.translate.key_answer import Alias, Answer, Refused
from recollect.types import BadInput

PLACES = ("agent.init_args.", "agent.init_config.", "agent.run_config.")  # other names of the section `agent`
CALCULATOR = "take agent.agent_type=hf, agent.tools=[calculator] and agent.max_turns"
OWN_CODE = "an agent of your own is agent.agent_type=FILE.py:FUNCTION"


def plain(key: str) -> str:
    """A key of the section `agent` by its plain name."""
    place = next((place for place in PLACES if key.startswith(place)), None)
    return key if place is None else f"agent.{key.removeprefix(place)}"


ANSWERS: Mapping[str, Answer] = {
    "agent.backend_config.backend": Alias("agent.backend"),
    "agent.tool_parser_name": Alias("agent.tool_parser"),
    "agent.max_model_len": Alias("agent.max_context_length"),
    "agent.max_concurrent_chains": Alias("agent.max_concurrency"),
    "agent.generation_config.max_tokens": Alias("agent.max_tokens_per_turn"),
    "agent.generation_config.temperature": Alias("actor_rollout_ref.rollout.temperature"),
    "agent.generation_config.top_p": Alias("actor_rollout_ref.rollout.top_p"),
    "agent.generation_config.top_k": Alias("actor_rollout_ref.rollout.top_k"),
    "agent.train_on_last_turn": Refused(
        "all turns of a trajectory are trained; roles choose among them (docs/stages.md)"
    ),
    "agent.context_config.*": Refused("containers are not used: programs run in the sandbox of this machine"),
    "agent.agent_type": Alias("agent.agent_type", words={"searchr1": "search_r1"}),
    "recurrent.enable": Alias(
        "recurrent.enable",
        "tool_gsm8k is agent.agent_type=hf with agent.tools=[calculator]",
        expand=lambda value, given: _recurrent(value),
    ),
    "recurrent.memory.config.context_key": Alias("data.context_key"),
    "recurrent.memory.path": Refused(OWN_CODE),
    "recurrent.memory.name": Refused(OWN_CODE),
    "recurrent.memory.async_path": Refused(OWN_CODE),
    "recurrent.memory.async_name": Refused(OWN_CODE),
    "recurrent.trival.*": Refused(OWN_CODE),
    "recurrent.tool_gsm8k.*": Refused(CALCULATOR),
}


def _recurrent(value: Any) -> Mapping[str, Any]:
    known = {"tool_gsm8k": CALCULATOR, "trival": "take agent.agent_type=chat"}
    if value in known:
        raise BadInput(f"recurrent.enable={value}: {known[value]}")
    return {"recurrent.enable": None if value is False else value}
