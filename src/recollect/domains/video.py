"""Questions about a video, from its captions: load them, reason, finalize."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from recollect.config import Config
from recollect.data.documents import pieces
from recollect.domains.captions import captions_of, clock
from recollect.domains.domain import SYNTAX, Domain, finalize, reason
from recollect.domains.expert_texts import GIVE_UP, known_answer, outputs, shortened, supported
from recollect.domains.verify import said
from recollect.rewards.domain_scoring import DomainScoring
from recollect.rewards.parts import JudgedTrajectory
from recollect.tasks.names import Split, names, values
from recollect.tasks.needle import holds
from recollect.tools.tool_definition import Tool, tool
from recollect.types import Action, Task

PROMPT = f"""Answer a question about a video. You know it by its captions, each with the time at which it begins. \
{SYNTAX}
First load_context, then reason about the scenes and times that matter, then finalize."""


@tool
def load_context(task: Task, start: float = 0.0, end: float = -1.0) -> str:
    """Load the captions of the video, each with the time at which it begins.

    Args:
        start: The first second to show.
        end: The last second to show; -1 shows all.
    """
    if task.context is None:
        return "There are no captions."
    text = task.context if isinstance(task.context, str) else "".join(pieces(task.context))
    shown = [c for c in captions_of(text) if c.start is None or (c.start >= start and (end < 0 or c.start <= end))]
    return "\n".join(map(str, shown)) or "There are no captions between these times."


def tools(cfg: Config) -> list[str | Tool]:
    """What the agent may call."""
    return [load_context, reason, finalize]


def missing(task: Task, cfg: Config) -> str:
    """What a data row lacks."""
    given = task.context.strip() if isinstance(task.context, str) else task.context
    return "" if given else f"a video task needs its captions under data.context_key={cfg.data.context_key}"


# ---- the scripted expert ----


_SCENE = r"(?:(?:of|in) the (?:video|clip|film|movie|recording))?\W*"
_WHAT = r"(?:what (?:happens|is shown|is seen|occurs|do we see|can be seen)|describe|how does)\b.*?"
_FIRST = re.compile(
    rf"{_WHAT}(?:(?:first|opening) (?:scene|shot|caption|moment|frame)|beginning|start|begin) ?{_SCENE}", re.IGNORECASE
)
_LAST = re.compile(
    rf"{_WHAT}(?:(?:last|final|closing) (?:scene|shot|caption|moment|frame)|end|ending) ?{_SCENE}", re.IGNORECASE
)
_AT = re.compile(r"What does (\w+) hold at (\d+:\d\d)\?")


def video_expert(task: Task, actions: list[Action]) -> str:
    """Load the captions, say which one matters, answer with it."""
    if not actions:
        return "load_context:"
    lines = [line for text in outputs(actions, "load_context") for line in text.splitlines()]
    line = _needed(task.question, lines)
    if len(actions) == 1:
        return f"reason: {shortened(line.rstrip('.')) if line else 'no caption is about this'}"
    if _AT.fullmatch(task.question.strip()):
        held = re.search(r" holds (\w+)\.?$", line or "")
        return f"finalize: {held[1] if held else GIVE_UP}"
    answer = known_answer(task, "\n".join(lines))
    return f"finalize: {answer if answer is not None else shortened(_untimed(line)) if line else GIVE_UP}"


def _needed(question: str, lines: list[str]) -> str | None:
    """The caption that a question is about; None if there is none."""
    asked = _AT.fullmatch(question.strip())
    if asked:
        return next((line for line in lines if line.startswith(f"{asked[2]} {asked[1]} ")), None)
    if lines and _FIRST.fullmatch(question.strip()):
        return lines[0]
    if lines and _LAST.fullmatch(question.strip()):
        return lines[-1]
    return supported(question, lines)


def _untimed(line: str) -> str:
    return re.sub(r"^[\d:]+ ", "", line)


# ---- made-up tasks ----


CAPTIONS, PEOPLE = 5, 8  # so that somebody often occurs once, sometimes twice
STEP = 5  # seconds


def make_task(rng: random.Random, split: Split) -> Task:
    """What does somebody hold at some moment? A subtitle file in which names come back at other times."""
    people = rng.sample(names(split), PEOPLE)
    spoken = rng.sample(values(split), CAPTIONS)
    times = sorted(rng.sample(range(STEP, 60, STEP), CAPTIONS))
    who = [rng.choice(people) for _ in range(CAPTIONS)]
    asked = rng.randrange(CAPTIONS)
    cues = [
        f"{i}\n{_stamp(t)} --> {_stamp(t + STEP)}\n{holds(name, value)}"
        for i, (t, name, value) in enumerate(zip(times, who, spoken, strict=True), 1)
    ]
    text = f"What does {who[asked]} hold at {clock(times[asked])}?"
    return Task("", text, "\n\n".join(cues) + "\n", (spoken[asked],))


def _stamp(seconds: int) -> str:
    return f"00:{seconds // 60:02d}:{seconds % 60:02d},000"


_MOMENT = re.compile(r"\b\d{1,2}:\d{2}\b")


def signs(reading: JudgedTrajectory, spoken: Sequence[str]) -> list[float]:
    """A moment that is named."""
    text = " ".join([reading.answer, *reading.thoughts])
    return [float(any(m in reading.read for m in _MOMENT.findall(text)))]


VIDEO = Domain(
    *("video", PROMPT, tools, said, video_expert, make_task),
    mixed=True,
    missing=missing,
    context_needed="video needs its captions: --context FILE (.txt, .json, .srt or .vtt), also --video_ctx FILE",
    scoring=DomainScoring(frozenset({"load_context", "search"}), signs),
)
