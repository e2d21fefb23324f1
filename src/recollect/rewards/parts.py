"""What the trajectory reward reads from a trajectory: its words, what they rest on, its thoughts, its tools."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from statistics import mean
from typing import Any

from recollect.rewards.domain_scoring import scoring_of
from recollect.rewards.filler_words import COMMON
from recollect.rewards.marked import given_answer
from recollect.rewards.weights import Weights
from recollect.trajectories.produced import is_prompted

_WORD = re.compile(r"[^\W_]+")
NO_ANSWER = frozenset({"", "none", "unknown", "n a", "na", "no answer", "null", "nothing"})
GIVEN_UP = ("i do not know", "i don t know", "i cannot answer", "i can t answer", "no idea", "i have no idea")
THOUGHTS = ("reason", "reason_hop", "decompose", "plan", "think")
LONG, LONGEST = 50, 400  # words of an answer that is as concise as can be, and of one that is not at all
MOST = 64  # words of an answer that are looked for in what was read


def words_in(text: str) -> list[str]:
    """The words of a text, in lower case."""
    return _WORD.findall(text.lower())


def saturated(count: float, enough: float) -> float:
    """0 to 1, reached when there are enough."""
    return min(1.0, count / enough)


def phrases_in(words: Sequence[str], phrases: Iterable[str]) -> int:
    """How many of some phrases occur, as whole words."""
    there, joined = set(words), f" {' '.join(words)} "
    return sum(f" {p} " in joined if " " in p else p in there for p in phrases)


def text_of(value: Any) -> str:
    """The texts within a value."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return " ".join(map(text_of, value.values()))
    if isinstance(value, list | tuple):
        return " ".join(map(text_of, value))
    return "" if value is None else str(value)


def plain_text(value: Any) -> str:
    """An answer as text; none is empty."""
    return "" if value is None else str(value)


class JudgedTrajectory:
    """One trajectory, as the reward reads it."""

    def __init__(self, trajectory: Mapping[str, Any], domain: str, weights: Weights) -> None:
        self.actions: list[Mapping[str, Any]] = list(trajectory["actions"])
        self.domain, self.weights, self.scoring = domain, weights, scoring_of(domain)
        self.answer = given_answer(plain_text(trajectory.get("final_answer")))
        self.question = str(trajectory.get("question") or "")
        about = trajectory.get("metadata")
        self.about = about if isinstance(about, Mapping) else {}

    @cached_property
    def said(self) -> list[str]:
        """The answer's words."""
        return words_in(self.answer)

    @cached_property
    def thoughts(self) -> list[str]:
        """What was thought, each thought once, those of a word or two left out."""
        texts = (self._thought(a) for a in self.actions if a["tool"] in THOUGHTS)
        return [t for t in dict.fromkeys(texts) if len(set(words_in(t))) >= 3]

    def _thought(self, action: Mapping[str, Any]) -> str:
        """The words of a thought; where its input is a prompt, what was said to it."""
        record = {"question": self.question, "metadata": self.about}
        return text_of(action["output" if is_prompted(action, record) else "input"])

    @cached_property
    def read(self) -> str:
        """What tools said, in lower case; thoughts and the answer itself say nothing."""
        quiet = (*THOUGHTS, "finalize")
        return "\n".join(text_of(a["output"]) for a in self.actions if a["tool"] not in quiet).lower()

    def is_answered(self) -> bool:
        """Whether something is said that is no placeholder and does not give up."""
        said = " ".join(self.said)
        return said not in NO_ANSWER and not said.startswith(GIVEN_UP)

    def is_stuffed(self) -> bool:
        """Whether the answer is hardly more than indicator words: most of a sentence, or half of a mere list."""
        content = [w for w in self.said if w not in COMMON]
        marked = sum(w in self.weights.marked for w in content)
        sentence = len(content) <= 0.75 * len(self.said)
        return marked >= 3 and marked > (0.7 if sentence else 0.5) * len(content)

    def grounding(self) -> float:
        """The share of the answer's own words that stand in what tools said."""
        asked = set(words_in(self.question))
        own = [w for w in dict.fromkeys(self.said) if w not in COMMON and w not in asked][:MOST]
        return sum(_occurs(w, self.read) for w in own) / len(own) if own else 0.0

    def quality(self, checked: bool) -> float:
        """The mean of the domain's signs, as far as the answer is grounded or has passed its check."""
        if not self.said or not (checked or (self.is_answered() and not self.is_stuffed())):
            return 0.0
        grounded = self.grounding()
        spoken = words_in(" ".join([self.answer, *self.thoughts]))
        signs = self.scoring.signs(self, spoken)
        named = saturated(phrases_in(spoken, self.weights.words(self.domain)), 3) * _substance(spoken, self.weights)
        return mean([*signs, named, grounded]) * (1.0 if checked else grounded)

    def reasoning(self) -> float:
        """Half for two thoughts that differ, half for words that connect them."""
        spoken = words_in(" ".join(self.thoughts))
        if not spoken:
            return 0.0
        connected = saturated(phrases_in(spoken, self.weights.connectors), 2)
        return (saturated(len(self.thoughts), 2) + connected) / 2 * _substance(spoken, self.weights)

    def conciseness(self) -> float:
        """1 up to 50 words, 0 from 400 on; 0 without an answer."""
        count = len(self.said)
        return 0.0 if not count else 1 - min(1.0, max(0.0, (count - LONG) / (LONGEST - LONG)))

    def tool_selection(self) -> float:
        """The share of actions with tools of the domain that were not done before."""
        acts = [a for a in self.actions if a["tool"] not in (*THOUGHTS, "finalize") or a["tool"] == "decompose"]
        known = self.scoring.tools
        fitting = {(a["tool"], repr(a["input"])) for a in acts if known is None or a["tool"] in known}
        return len(fitting) / len(acts) if acts else 0.0

    def used(self, *tools: str) -> int:
        """How many different inputs some tools were given."""
        return len({repr(a["input"]) for a in self.actions if a["tool"] in tools})


def _substance(words: Sequence[str], weights: Weights) -> float:
    """1 where at most half of the words are indicators, less where they crowd out all else."""
    distinct = set(words)
    return min(1.0, 2 * (1 - len(distinct & weights.marked) / len(distinct))) if distinct else 0.0


def _occurs(word: str, text: str) -> bool:
    """Whether a word stands in a text, not as a part of another."""
    at = text.find(word)
    while at >= 0:
        end = at + len(word)
        if not (at and text[at - 1].isalnum()) and not (end < len(text) and text[end].isalnum()):
            return True
        at = text.find(word, at + 1)
    return False
