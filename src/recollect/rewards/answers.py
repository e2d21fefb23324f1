"""Rewards by the names that AgentFly's commands use: F1 of an answer to a question, equality of a result."""

from __future__ import annotations

import re

from recollect.rewards.text import em, f1, last_boxed
from recollect.types import Score, Task

_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL | re.IGNORECASE)
_SAID = re.compile(r"(?:####|\banswer\s*(?:is|:|=))[ \t]*([^\n]+)", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?")
_PLAIN_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")


def qa_f1_reward(answer: str, task: Task) -> Score:
    """The F1 of the final answer's words, with the exact match beside it."""
    said = final_answer(answer)
    score = f1(said, task)
    return Score(score, {"f1": score, "em": em(said, task)})


def math_reward_string_equal(answer: str, task: Task) -> float:
    """1 when the final answer and an accepted answer are the same string once both are written plainly."""
    said = plain_result(final_answer(answer))
    return float(bool(said) and any(said == plain_result(final_answer(gold)) for gold in task.answers))


def final_answer(text: str) -> str:
    r"""What a text settles on: its last \boxed{…}, <answer>…</answer>, `#### …` or "answer is …", else all of it."""
    boxed = last_boxed(text)
    if boxed is not None:
        return boxed
    for pattern in (_ANSWER, _SAID):
        if found := pattern.findall(text):
            return str(found[-1]).strip()
    return text.strip()


def plain_result(text: str) -> str:
    """A result without dollar signs, thousands separators, units after a number, a final full stop and spaces."""
    text = re.sub(r"\\(?:text|mathrm)\s*\{([^}]*)\}", r"\1", text)
    text = text.replace("$", "").replace("\\!", "").replace("\\,", "").replace("\\%", "").replace("%", "").strip()
    text = text.rstrip(".").strip()
    lead = _NUMBER.match(text)
    if lead and (not text[lead.end() :].strip() or re.fullmatch(r"\s+[a-zA-Z ]+", text[lead.end() :])):
        text = lead.group()
    digits = text.replace(",", "")
    if _PLAIN_NUMBER.fullmatch(digits):
        sign = "-" if digits.startswith("-") else ""
        whole, _, rest = digits.lstrip("+-").partition(".")
        rest = rest.rstrip("0")
        value = (whole.lstrip("0") or "0") + (f".{rest}" if rest else "")
        return value if value == "0" else sign + value
    return "".join(text.split())
