"""Rewards for how an answer was reached: its form, its tool calls, its length. They are meant as parts of a sum.

None of them knows whether the answer is right, so none is worth much alone; each gives nothing for an empty answer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from recollect.rewards.decorator import reward
from recollect.rewards.marked import given_answer, marked
from recollect.rewards.text import normalize
from recollect.rewards.tool_calls import calls_in, calls_of
from recollect.types import Trajectory

TAGS = ("think", "tool_call", "answer", "search", "python", "code")
_ANY_TAG = re.compile(rf"<(/?)({'|'.join(TAGS)})>")
ANSWER_TOOLS = ("answer", "finish", "final_answer")
FAILED = ("malformed", "unknown", "arguments", "exception", "timeout")


@reward("format", inline=True)
def format_reward(answer: str, trajectory: Trajectory) -> float:
    """1 when every turn can be read as it was meant, and the last one gives one marked answer and ends by itself."""
    if not trajectory.turns or not _says_something(answer):
        return 0.0
    texts = [turn.completion.text for turn in trajectory.turns]
    if trajectory.turns[-1].completion.stop == "length":
        return 0.0
    if not all(_paired(text) and all(call.formed for call in calls_in(text)) for text in texts):
        return 0.0
    answers = marked(texts[-1]) + [c.arguments for c in calls_in(texts[-1]) if c.name in ANSWER_TOOLS]
    return float(len(answers) == 1 and bool(normalize(given_answer(answers[0]))))


@reward(inline=True)
def tool_use(answer: str, trajectory: Trajectory, waste: float = 0.25) -> float:
    """1 for an answer after at least one call that worked, less ``waste`` for every failed or repeated one."""
    calls = [call for call in calls_of(trajectory) if call.name not in ANSWER_TOOLS]
    formed = [call for call in calls if call.formed]
    failed, worked = len(calls) - len(formed), len(formed)
    counts: Mapping[str, int] = getattr(trajectory, "tool_calls", {})  # what came of the calls, where that was counted
    if counts:
        failed = sum(counts.get(outcome, 0) for outcome in FAILED)
        worked = counts.get("ok", 0) - sum(counts.get(f"tool/{name}", 0) for name in ANSWER_TOOLS)
    if not formed or worked <= 0 or not _says_something(answer):
        return 0.0
    return max(0.0, 1.0 - waste * (failed + len(formed) - len(set(formed))))


@reward(inline=True)
def length_penalty(answer: str, trajectory: Trajectory, limit: int = 1024, buffer: int = 256) -> float:
    """0 up to ``limit - buffer`` sampled tokens, from there in a straight line to -1 at ``limit``; -1 for no answer."""
    if not _says_something(answer):
        return -1.0
    tokens = sum(len(turn.completion.ids) for turn in trajectory.turns if turn.trainable)
    over = tokens - (limit - buffer)
    return -min(1.0, max(0.0, over / buffer)) if buffer > 0 else -float(tokens > limit)


def _says_something(answer: str) -> bool:
    return bool(normalize(given_answer(answer)))


def _paired(text: str) -> bool:
    """Every tag closes before another of its name opens, and none closes that is not open; fences close."""
    opened: Counter[str] = Counter()
    for closing, name in _ANY_TAG.findall(text):
        opened[name] += -1 if closing else 1
        if opened[name] not in (0, 1):
            return False
    return not any(opened.values()) and len(re.findall(r"^```", text, re.MULTILINE)) % 2 == 0
