"""The oracle of each agent: who plays its roles, and what counts as a turn with nothing to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from recollect.agents.memory.recurrent_prompts import EMPTY_MEMORY
from recollect.config import Config
from recollect.oracles.calculations import calculate_step, worked_answer
from recollect.oracles.moment import Moment
from recollect.oracles.reading_oracle import answer_from_text, keep_evidence
from recollect.oracles.remembering import memory_problem, say_answer
from recollect.oracles.searching import search_step
from recollect.oracles.taking_notes import IDLE, look_up, take_note

Respond = Callable[[Moment], str]


@dataclass(frozen=True)
class OracleSpec:
    """Who says what in each role."""

    roles: Mapping[str, Respond]
    idle: str = ""  # what is said where there is nothing to do; such turns are balanced against the others
    problem: Callable[[Config], str] = lambda cfg: ""  # why it cannot play with these settings


ORACLES: dict[str, OracleSpec] = {
    "recurrent": OracleSpec({"memory": keep_evidence, "qa": answer_from_text}, EMPTY_MEMORY),
    "tool_memory": OracleSpec({"memory": take_note, "qa": look_up}, IDLE),
    "conversation_qa": OracleSpec({"memory": say_answer, "qa": say_answer}, problem=memory_problem),
    "concat": OracleSpec({"qa": answer_from_text}),
    "rag": OracleSpec({"qa": answer_from_text}),
    "search_once": OracleSpec({"qa": answer_from_text}),
    "chat": OracleSpec({"agent": worked_answer}),
    "hf": OracleSpec({"agent": calculate_step}),
    "react": OracleSpec({"agent": search_step}),
}
