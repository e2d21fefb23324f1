"""Translate settings of other systems into ours, or refuse them with a reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recollect.config.translate.key_answer import Alias, Given, Refused
from recollect.config.translate.known_keys import answer_of
from recollect.config.translate.trees import is_default
from recollect.registries import AGENTS
from recollect.types import BadInput


@dataclass
class Translated:
    """Settings under our names, and messages about those that have none."""

    settings: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # taken, with the reason why they change nothing
    usual: list[str] = field(default_factory=list)  # taken, for they ask for what happens anyway
    only_for: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)  # setting → the agents that read it
    source: dict[str, str] = field(default_factory=dict)  # our key → the setting that it comes from

    def lines(self) -> list[str]:
        """All messages."""
        usual = f"as it is here anyway: {', '.join(self.usual)}"
        return [*self.notes, *([usual] if self.usual else [])]


def translate(given: Given) -> Translated:
    """Each setting under our name; unknown keys stay as they are."""
    made = Translated()
    for key, value in given.items():
        answer, said = answer_of(key), f"{key}={_shown(value)}"
        if answer is None:
            _put(made, {key: value}, said)
        elif isinstance(answer, Alias):
            if answer.fact and is_default(key, value) and _another_agent(answer, given):
                made.usual.append(said)
                continue
            _put(made, _renamed(key, value, answer, given), said, answer.least)
            if answer.fact and not is_default(key, value):
                made.only_for.append((said, tuple(AGENTS.those(answer.fact))))
        elif not isinstance(answer, Refused):
            made.notes.append(f"{said}: {answer.why}")
        elif _asks_for_nothing(key, value, answer, given):
            made.usual.append(said)
        else:
            raise BadInput(f"{said}: {answer.why}")
    return made


def refuse_unread(only_for: Sequence[tuple[str, tuple[str, ...]]], agent: str) -> None:
    """Refuse settings that the agent of the run does not read."""
    for said, agents in only_for:
        if agent not in agents and ":" not in agent:
            raise BadInput(
                f"{said} is read by {', '.join(agents)}; the agent {agent} has no such setting: leave it out"
            )


def _renamed(key: str, value: Any, answer: Alias, given: Given) -> Mapping[str, Any]:
    if isinstance(value, str) and value.startswith("${") and is_default(key, value):
        return {}  # it follows another key, as it does by default
    if answer.expand is not None:
        return answer.expand(value, given)
    word = value if isinstance(value, str | bool | int | float | None) else "a list"
    if word in answer.words:
        value = answer.words[word]
    return {} if value is None else {answer.to: value}


def _another_agent(answer: Alias, given: Given) -> bool:
    """Whether the settings themselves name an agent that does not read the key."""
    named = given.get("agent.agent_type")
    return named is not None and named not in AGENTS.those(answer.fact)


def _put(made: Translated, new: Mapping[str, Any], said: str, least: bool = False) -> None:
    for key, value in new.items():
        if key in made.settings and made.settings[key] != value:
            if not least:
                raise BadInput(f"{made.source[key]} and {said} are the same setting; give one of them")
            value = min(value, made.settings[key])
        made.settings[key] = value
        made.source[key] = said


def _asks_for_nothing(key: str, value: Any, answer: Refused, given: Given) -> bool:
    if any(value == fine and isinstance(value, bool) == isinstance(fine, bool) for fine in answer.fine):
        return True
    return is_default(key, value) or (answer.when is not None and answer.when(key, value, given))


def _shown(value: Any) -> str:
    return "null" if value is None else str(value)
