"""The words of a command line: names and questions, and settings between them in any order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from recollect.models.checkpoints import EMBEDDED, SMOLLM2
from recollect.types import BadInput

_SETTING = re.compile(r"\+{0,2}(?P<key>[A-Za-z_][\w.]*)=")


def is_setting(word: str) -> bool:
    """True for ``key=value``, but not for a sentence with an equals sign."""
    found = _SETTING.match(word)
    return found is not None and ("." in found["key"] or not re.search(r"\s", word))


def plain_first(words: Sequence[str]) -> list[str]:
    """The same words, settings last."""
    return sorted(words, key=is_setting)


def ask_arguments(words: Sequence[str], has_roles: bool) -> tuple[str | None, str, list[str]]:
    """(checkpoint, question, a recipe and settings) of `recollect ask`; with roles there may be no checkpoint."""
    plain = [word for word in words if not is_setting(word)]
    if len(plain) > 1 and not _is_model(plain[0]) and _is_model(plain[1]):
        plain[:2] = plain[1::-1]
    if (not has_roles and len(plain) < 2) or not plain:
        raise BadInput("ask what? CHECKPOINT QUESTION, or --role NAME=DIR_OR_URL … QUESTION")
    checkpoint = None if has_roles and len(plain) < 2 else plain.pop(0)
    question = plain.pop(0)
    if len(plain) > 1:
        raise BadInput(f'put the question in quotes: "{" ".join([question, *plain])}"')
    return checkpoint, question, [*plain, *(word for word in words if is_setting(word))]


def _is_model(word: str) -> bool:
    return word in (EMBEDDED, SMOLLM2) or Path(word).expanduser().exists()
