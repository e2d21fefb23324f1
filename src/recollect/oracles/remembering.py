"""The oracle of an agent that remembers a conversation: it says the row's answer to the question that it is shown."""

from __future__ import annotations

from recollect.config import Config
from recollect.data.questions import questions_of
from recollect.oracles.moment import Moment

WRITTEN = ("recurrent", "notes")  # memories that the model writes


def say_answer(moment: Moment) -> str:
    """The first accepted answer to the question."""
    asked = [question for question in questions_of(moment.task) if moment.shows(question.text)]
    found = max(asked, key=lambda question: len(question.text), default=None)  # another may be a part of it
    return found.answers[0] if found is not None and found.answers else ""


def memory_problem(cfg: Config) -> str:
    """Why it cannot play with these settings: nobody knows what a memory of such a conversation should say."""
    kind = cfg.conversation.memory
    return f"it answers questions, and does not write conversation.memory={kind}" if kind in WRITTEN else ""
