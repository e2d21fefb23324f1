"""What a chat template writes around messages whose text it does not look at.

Most templates put a user's text into the prompt as it is. Prompts of such messages are joined from the pieces around
them, without the template engine. Whether a template looks at a text is watched once: it renders texts that notice
every question about them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

_QUIET = {"__class__", "__html__"}  # asked of any object, whatever it holds
_TRIED = ("", " \n\"<a>'&\\u00e9 {{ b }} {% if c %}\u00e9\t\n")  # texts that anything but copying would change


class _LookedAt(Exception):
    """A template asks what a text holds."""


class _Watched(str):
    """A text that may be copied, and added to others, and nothing else."""

    def _refuse(self, *_: object) -> NoReturn:
        raise _LookedAt

    def __str__(self) -> str:
        return str.__str__(self)

    def __getattribute__(self, name: str) -> Any:
        if name not in _QUIET:
            raise _LookedAt
        return super().__getattribute__(name)

    def __add__(self, other: str) -> _Watched:
        return _Watched(str.__str__(self) + str.__str__(other))

    def __radd__(self, other: str) -> _Watched:
        return _Watched(str.__str__(other) + str.__str__(self))

    __len__ = __bool__ = __iter__ = __getitem__ = __contains__ = __hash__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __mul__ = __rmul__ = __mod__ = __rmod__ = __format__ = _refuse


def template_frame(tokenizer: Any, roles: Sequence[str]) -> tuple[str, ...] | None:
    """What stands before, between and after the texts of messages with these roles, in a prompt.

    None where the template looks at the texts, or at the clock, or refuses such messages.
    """
    try:
        template = tokenizer.get_chat_template()
        if "strftime_now" in template:
            return None
        marks = [f"\u2402{i}\u2403" for i in range(len(roles))]
        frame = _cut(_watched(tokenizer, template, roles, marks), marks)
        if frame is None:
            return None
        for text in _TRIED:
            rows = [{"role": role, "content": text} for role in roles]
            whole = tokenizer.apply_chat_template(rows, tools=None, add_generation_prompt=True, tokenize=False)
            if joined(frame, [text] * len(roles)) != whole:
                return None
    except Exception:  # a template may raise anything; the usual way says what is wrong
        return None
    return frame


def joined(frame: Sequence[str], texts: Sequence[str]) -> str:
    """The prompt of some texts."""
    return frame[0] + "".join(text + after for text, after in zip(texts, frame[1:], strict=True))


def _watched(tokenizer: Any, template: str, roles: Sequence[str], texts: Sequence[str]) -> str:
    """A prompt, rendered as the library does it, of texts that must not be looked at."""
    from transformers.utils import chat_template_utils

    compiled = chat_template_utils._compile_jinja_template(template)
    rows = [{"role": role, "content": _Watched(text)} for role, text in zip(roles, texts, strict=True)]
    return str(
        compiled.render(
            messages=rows, tools=None, documents=None, add_generation_prompt=True, **tokenizer.special_tokens_map
        )
    )


def _cut(text: str, marks: Sequence[str]) -> tuple[str, ...] | None:
    """The pieces of a text around some marks, each of which has to be there once, in order."""
    pieces = []
    for mark in marks:
        if text.count(mark) != 1:
            return None
        before, text = text.split(mark)
        pieces.append(before)
    return (*pieces, text)
