"""From a wording to the messages of a turn."""

from __future__ import annotations

from collections.abc import Mapping

from recollect.config.prompt_file import DemonstratedTurn, Wording
from recollect.types import Message


def worded(wording: Wording, inputs: Mapping[str, str]) -> list[Message]:
    """The demonstrations as earlier turns, and what the turn shows."""
    earlier = [m for demo in wording.demonstrations for m in _turn(wording, demo, inputs)]
    return [*earlier, Message("user", wording.text.format(**inputs))]


def question_turns(wording: Wording) -> list[Message]:
    """The demonstrations of an agent that is asked with the question as it stands."""
    return [m for d in wording.demonstrations for m in (Message("user", d.inputs["question"]), _said(d))]


def _turn(wording: Wording, demo: DemonstratedTurn, inputs: Mapping[str, str]) -> tuple[Message, Message]:
    """A demonstration; what it leaves out is as in the turn itself."""
    return Message("user", wording.text.format(**{**inputs, **demo.inputs})), _said(demo)


def _said(demo: DemonstratedTurn) -> Message:
    return Message("assistant", demo.reply)
