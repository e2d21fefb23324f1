"""Messages ⇄ token ids, with the tokenizer's own chat template.

A conversation grows by appending ids: the next prompt is the previous prompt, the ids that were sampled, and the ids of
the new messages. Sampled ids are never decoded and tokenised again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from recollect.types import BadInput, Message

CHATML = (
    r"{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    r"{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TEMPLATES = {"chatml": CHATML, "qwen2.5": CHATML, "qwen3": CHATML}  # for `agent.template`


def use_template(tokenizer: Any, name: str | None) -> Any:
    """The tokenizer with a chat template by name. A Qwen tokenizer keeps its own under its family's name."""
    own = str(getattr(tokenizer, "chat_template", None) or "")
    if name is not None and (name == "chatml" or "<|im_start|>" not in own):
        tokenizer.chat_template = TEMPLATES[name]
    return tokenizer


class Renderer:
    """Renders messages for one tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        if not getattr(tokenizer, "chat_template", None):
            raise BadInput("the tokenizer has no chat template; add one to its folder (chat_template.jinja)")
        known = [str(t) for t in tokenizer.all_special_tokens]
        known += [str(t) for t in tokenizer.added_tokens_decoder.values() if t.special]
        special = sorted({t for t in known if len(t) > 1}, key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, special))) if special else None
        self.end_id = self._end_of_turn()
        eos = tokenizer.eos_token_id
        self.stop_ids = (self.end_id,) if eos in (None, self.end_id) else (self.end_id, int(eos))

    def _text(self, messages: Sequence[Message], generate: bool) -> str:
        rows = [{"role": m.role, "content": self._harmless(m.content)} for m in messages]
        return str(self.tokenizer.apply_chat_template(rows, add_generation_prompt=generate, tokenize=False))

    def _harmless(self, content: str) -> str:
        """A message's text with the tokenizer's control tokens spelt apart: a document must not end the user's turn."""
        if self._special is None or not self._special.search(content):
            return content
        return self._special.sub(lambda found: f"{found.group()[0]} {found.group()[1:]}", content)

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without anything added. Fast tokenizers are called directly."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is not None:
            return list(backend.encode(text, add_special_tokens=False).ids)
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Start and end character of each token of a text."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise BadInput("text is cut between tokens, which needs a fast tokenizer (a tokenizer.json)")
        return list(backend.encode(text, add_special_tokens=False).offsets)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, special tokens left out."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Ids of a conversation that the assistant speaks next in."""
        return self.encode(self._text(messages, True))

    def extend(self, prompt: Sequence[int], sampled: Sequence[int], new: Sequence[Message]) -> list[int]:
        """The next prompt of a conversation: all that was there, then the new messages.

        The new messages' ids are what the template writes after a closed assistant turn. A turn that was cut short
        is closed first, with tokens that count as prompt.
        """
        closing, following = self._after_assistant(new)
        closing_ids = self.encode(closing)
        if sampled and sampled[-1] in closing_ids and sampled[-1] in self.stop_ids:  # it closed its turn itself
            closing_ids = closing_ids[closing_ids.index(sampled[-1]) + 1 :]
        return [*prompt, *sampled, *closing_ids, *self.encode(following)]

    def _after_assistant(self, new: Sequence[Message]) -> tuple[str, str]:
        """What the template writes to close an assistant turn, and what it writes for the messages after it."""
        mark = "\u2402recollect\u2403"
        start = [Message("user", "a"), Message("assistant", mark)]
        before = self._text(start, False)
        after = self._text([*start, *new], True)
        closing = before[before.rindex(mark) + len(mark) :]
        if not after.startswith(before):
            raise BadInput("the chat template rewrites earlier turns; use one that only appends")
        return closing, after[len(before) :]

    def _end_of_turn(self) -> int:
        """The token that the template closes an assistant's turn with, else the tokenizer's end token."""
        mark = "\u2402recollect\u2403"
        text = self._text([Message("user", "a"), Message("assistant", mark)], False)
        closing = self.encode(text[text.rindex(mark) + len(mark) :])
        special = set(self.tokenizer.all_special_ids)
        special |= {i for i, token in self.tokenizer.added_tokens_decoder.items() if token.special}
        return int(closing[0] if closing and closing[0] in special else self.tokenizer.eos_token_id)
