"""Oracles that read: keep what answers the question, and answer from what is shown."""

from __future__ import annotations

from collections.abc import Callable

from recollect.agents.memory.recurrent_prompts import EMPTY_MEMORY
from recollect.oracles.moment import UNKNOWN, Moment, boxed, squeezed

LEAST = 24  # characters around an answer that make a part of a sentence worth keeping


def keep_evidence(moment: Moment) -> str:
    """The memory so far, and the sentences of this section that answer the question; "none" while there are none.

    Each sentence is a line behind a dash. So the first token of a turn says whether there is something to keep, and a
    greedy model says so as often as its teacher, even where it is not sure how the sentence begins.
    """
    (known,) = moment.known
    said = [turn.completion.text for turn in moment.trajectory.turns]
    memory = said[-1] if said and said[-1] != EMPTY_MEMORY else ""
    for sentence in known.evidence:
        if squeezed(memory).find(squeezed(known.answer)) >= 0 and len(known.evidence) == 1:
            break
        before = memory
        fits = lambda part, before=before: moment.shows(part) and moment.fits(joined(before, part))
        memory = joined(before, around(sentence, known.answer, fits))
    return memory or EMPTY_MEMORY


def joined(memory: str, part: str) -> str:
    """A memory with one more part, unless it holds it."""
    if not part or squeezed(part) in squeezed(memory):
        return memory
    return f"{memory}\n- {part}".strip()


def around(sentence: str, answer: str, fits: Callable[[str], bool]) -> str:
    """The sentence, or as many words around the answer in it as fit; empty where that is next to nothing."""
    if fits(sentence):
        return sentence
    place = sentence.find(answer)
    low, high = LEAST, len(sentence)
    best = ""
    while place >= 0 and low <= high:
        reach = (low + high) // 2
        part = whole_words(sentence, max(0, place - reach), place + len(answer) + reach)
        if fits(part):
            low, best = reach + 1, part
        else:
            high = reach - 1
    return best


def whole_words(text: str, start: int, end: int) -> str:
    """A part of a text, widened by nothing: words that it cuts are left out."""
    first = start if start == 0 or text[start - 1].isspace() else text.find(" ", start) + 1
    last = end if end >= len(text) or text[end].isspace() else text.rfind(" ", 0, end)
    return text[first:last].strip()


def answer_from_text(moment: Moment) -> str:
    """The answer, where the prompt holds it besides the question."""
    known = moment.asked
    return boxed(known.answer if moment.shows(known.answer) else UNKNOWN)
