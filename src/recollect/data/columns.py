"""What the columns of a data row mean: the question, the messages before it, the accepted answers.

A key that the user names is the only one that is looked at. Only where the default is kept do its usual other names
count, so that a mistyped key is an error and not another column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recollect.types import BadInput

QUESTION, ANSWER = "question", "answer"  # the defaults of data.prompt_key and data.answer_key
QUESTION_NAMES = ("question", "prompt", "instruction", "problem", "messages", "input", "query")
ANSWER_NAMES = ("answer", "answers", "golden_answers")


def question_of(row: Mapping[str, Any], key: str) -> str | None:
    """The text that forms the first message; of a list of messages the last one of the user."""
    value = _prompt(row, key)
    if _is_list(value):
        asked = [m["content"] for m in messages_of(row, key) if m["role"] == "user"]
        value = asked[-1] if asked else None
    return value if isinstance(value, str) and value.strip() else None


def question_list(row: Mapping[str, Any], key: str) -> list[Any] | None:
    """The questions of a prompt that holds a list of them, as the two-stage system's rows do; None for any other.

    Such a prompt is a list of texts, or messages of which the user's last has a list of texts as its content.
    """
    value = _prompt(row, key)
    if _is_list(value) and value and all(isinstance(m, Mapping) for m in value):
        value = next((m for m in reversed(value) if m.get("role", "user") == "user"), None)
    if isinstance(value, Mapping):
        value = value.get("content")
    if not _is_list(value) or not value or not all(item is None or isinstance(item, str) for item in value):
        return None
    return list(value)


def messages_of(row: Mapping[str, Any], key: str) -> list[dict[str, str]]:
    """The messages of a prompt that is a list of them, up to the user's last; none for a plain text."""
    value = _prompt(row, key)
    if not _is_list(value) or not all(isinstance(m, Mapping) for m in value):
        return []
    messages = [{"role": str(m.get("role", "user")), "content": _text(m.get("content"))} for m in value]
    while messages and messages[-1]["role"] != "user":
        messages.pop()
    return messages


def accepted_answers(row: Mapping[str, Any], key: str, place: str) -> list[str]:
    """The answers that count as right, without blank ones."""
    return texts_of(truth_of(row, key), place)


def truth_of(row: Mapping[str, Any], key: str) -> Any:
    """What a row holds as its answer, as it stands there; None where there is nothing."""
    truth: Any = next((row[k] for k in (ANSWER_NAMES if key == ANSWER else (key,)) if row.get(k) is not None), None)
    if truth is None and key == ANSWER and isinstance(row.get("reward_model"), Mapping):
        truth = row["reward_model"].get("ground_truth")
    return truth


def texts_of(truth: Any, place: str) -> list[str]:
    """Accepted answers from a text, a number, a list of them, or an object that has them under target or text."""
    if isinstance(truth, Mapping):
        name = next((n for n in ("target", "text") if n in truth), None)
        if name is None:
            raise BadInput(
                f"{place}: the accepted answer is an object with {', '.join(truth)}; expected text or a list"
            )
        truth = truth[name]
    if _is_list(truth):
        return [text for item in truth for text in texts_of(item, place)]
    return [] if truth is None or not str(truth).strip() else [str(truth)]


def question_hint(row: Mapping[str, Any], key: str) -> str:
    """What to do about a row without a question under a key, where another of its columns may hold it."""
    there = next((name for name in QUESTION_NAMES if row.get(name) is not None), None)
    if there is None:
        return ""
    if there not in prompt_names(key):
        return f" (data.prompt_key={there} takes `{there}`)"
    return f" (`{there}` holds no text, nor a message of the user with text)"


def prompt_names(key: str) -> tuple[str, ...]:
    """The columns that may hold the prompt."""
    return QUESTION_NAMES if key == QUESTION else (key,)


def _prompt(row: Mapping[str, Any], key: str) -> Any:
    return next((row[name] for name in prompt_names(key) if row.get(name) is not None), None)


def _text(content: Any) -> str:
    """A message's text, also where it is a list of parts."""
    if _is_list(content):
        for part in content:
            if not isinstance(part, str) and not (isinstance(part, Mapping) and isinstance(part.get("text"), str)):
                raise BadInput(f"a part of a message is no text: {str(part)[:80]}")
        return "".join(part if isinstance(part, str) else part["text"] for part in content)
    return content if isinstance(content, str) else ""


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)
