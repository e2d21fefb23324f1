"""Messages ⇄ token ids, with the tokenizer's chat template.

A conversation grows by appending ids: the next prompt is the previous prompt, the ids that were sampled, and the ids of
the new messages. Sampled ids are never decoded and tokenised again, whatever the template would make of earlier turns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np

from recollect.chat.encode_queue import EncodeQueue
from recollect.chat.encoder import Encoder
from recollect.chat.parsers import default_parser
from recollect.chat.schemas import Schema
from recollect.chat.template_frame import joined, template_frame
from recollect.chat.tokens import Tokens
from recollect.chat.writers import TOOL_WRITERS
from recollect.images.image_ids import FIRST, image_ids, spans
from recollect.images.patches import Patches
from recollect.types import IMAGE_MARK, BadInput, Image, Message, ToolCall

_MARK = "\u2402recollect\u2403"
_START = (Message("user", "a"), Message("assistant", _MARK))
_PROBE: Schema = {
    "type": "function",
    "function": {"name": _MARK, "description": "", "parameters": {"type": "object", "properties": {}}},
}


FRAMED = 4  # messages of a conversation whose frame is remembered
IMAGE_BORDERS = ("<|vision_start|>", "<|vision_end|>")  # what templates write around an image
ENDS_OF_TEXT = (
    "<|endoftext|>",
    "<|end_of_text|>",
)  # they end a turn, whatever its template closes it with


def images_of(messages: Sequence[Message]) -> list[Image]:
    """The images of some messages, in order."""
    return [image for message in messages for image in message.images]


class Renderer:
    """Renders messages for one tokenizer, and for a model that sees, images as the ids of their tokens."""

    def __init__(self, tokenizer: Any, patches: Patches | None = None) -> None:
        self.tokenizer = tokenizer
        self.patches = patches  # how the model sees images; None: it reads text alone
        self.counts_only = False  # the prompts are rendered by somebody else: an image counts as a character here
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is not None and (backend.truncation or backend.padding):
            backend.no_truncation()  # a tokenizer.json may ask for both; no prompt is cut or filled in silence
            backend.no_padding()
        self._encoder = None if backend is None else Encoder(backend)
        self._together = EncodeQueue(self.encode_all)
        self._frames: dict[tuple[str, ...], tuple[str, ...] | None] = {}
        if not getattr(tokenizer, "chat_template", None):
            raise BadInput(
                "the tokenizer has no chat template; name one with agent.template=…, "
                "or add one to its folder (chat_template.jinja)"
            )
        known = [str(t) for t in tokenizer.all_special_tokens]
        known += [str(t) for t in tokenizer.added_tokens_decoder.values() if t.special]
        special = sorted({t for t in known if len(t) > 1}, key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, special))) if special else None
        self.end_id, self._closing = self._end_of_turn()
        eos, others = tokenizer.eos_token_id, [i for t, i in self._special_ids.items() if t == "<|eom_id|>"]
        texts = [i for t, i in self._special_ids.items() if t in ENDS_OF_TEXT]  # models that ramble write them too
        self.stop_ids = tuple(dict.fromkeys([self.end_id, *others, *texts, *([] if eos is None else [int(eos)])]))
        self._closers = {self.end_id, *others}  # tokens that close a turn as the template does

    def for_counting(self) -> Renderer:
        """The same renderer for a policy that is asked with messages."""
        made = copy(self)
        made.counts_only = True
        return made

    # ---- what the template can do ----

    @cached_property
    def parser(self) -> str:
        """The name of the parser for the calls that this template asks for."""
        return default_parser(str(self.tokenizer.chat_template))

    @cached_property
    def shows_tools(self) -> bool:
        """True when the template writes tool schemas into the prompt."""
        try:
            return _MARK in self._text([Message("user", "a")], True, [_PROBE])
        except BadInput:
            return False

    @cached_property
    def _knows_tool_role(self) -> bool:
        try:
            return _MARK in self._text([Message("user", "a"), Message("assistant", "b")], True, None, (_MARK,))
        except BadInput:
            return False

    # ---- text ----

    def _text(
        self,
        messages: Sequence[Message],
        generate: bool,
        tools: Sequence[Schema] | None = None,
        results: Sequence[str] = (),
    ) -> str:
        rows: list[Mapping[str, Any]] = [{"role": m.role, "content": self._content(m)} for m in messages]
        return self._rendered([*rows, *({"role": "tool", "content": r} for r in results)], generate, tools)

    def _content(self, message: Message) -> str | list[dict[str, str]]:
        """A message's content for the template: its text, or texts and images in turn."""
        if not message.images or (self.patches is None and self.counts_only):
            return self.harmless(message.content)
        self._seeing()
        first, *others = message.content.split(IMAGE_MARK)
        assert len(others) == len(message.images), "every image of a message has a mark in its content"
        texts = [[{"type": "text", "text": self.harmless(text)}] if text else [] for text in (first, *others)]
        return [*texts[0], *(part for text in texts[1:] for part in ({"type": "image"}, *text))]

    def _seeing(self) -> Patches:
        if self.patches is None:
            raise BadInput("the prompt holds images, and this model reads text alone; name one that sees")
        return self.patches

    def _rendered(
        self, rows: Sequence[Mapping[str, Any]], generate: bool, tools: Sequence[Schema] | None = None
    ) -> str:
        try:
            text = self.tokenizer.apply_chat_template(
                list(rows), tools=list(tools) if tools else None, add_generation_prompt=generate, tokenize=False
            )
        except Exception as error:  # templates raise errors of their own
            raise BadInput(f"the chat template refuses the conversation: {error}") from None
        return str(text)

    def _adapted(self, messages: Sequence[Message]) -> list[Message]:
        """Messages of roles that the template knows: where it has none for tools, results are one user message."""
        if not any(m.role == "tool" for m in messages) or self._knows_tool_role:
            return list(messages)
        rows: list[Message] = []
        for previous, message in zip([None, *messages], messages, strict=False):
            if message.role != "tool":
                rows.append(message)
            elif previous is not None and previous.role == "tool":
                joined = f"{rows[-1].content}\n{message.content}"
                rows[-1] = Message("user", joined, rows[-1].images + message.images)
            else:
                rows.append(Message("user", message.content, message.images))
        return rows

    def harmless(self, content: str) -> str:
        """A message's text with control tokens broken into plain text: a document must not end the user's turn."""
        content = content.encode("utf-8", "replace").decode()  # half characters, which no tokenizer takes
        if self._special is None or not self._special.search(content):
            return content
        return self._special.sub(lambda found: f"{found.group()[0]} {found.group()[1:]}", content)

    # ---- ids ----

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without anything added. Fast tokenizers are called directly."""
        if self._encoder is not None:
            return self._encoder.encode(text)
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of several texts."""
        return [*map(self.encode, texts)] if self._encoder is None else self._encoder.encode_all(texts)

    async def encode_soon(self, text: str) -> list[int]:
        """The same, together with all texts that other tasks of the event loop ask for at this moment."""
        return await self._together.ids(text)

    def at_least(self, text: str, enough: int) -> int:
        """A number of tokens that a long text has at least, found without tokenising much more than ``enough``."""
        if self._encoder is None or len(text) <= enough:
            return 0
        return self._encoder.at_least(text, enough)

    def learn(self, tokens: Tokens, start: int, stop: int) -> None:
        """Learn the ids of a part of a text before prompts show it (without the blanks around it)."""
        if self._encoder is not None:
            self._encoder.pieces.learn(tokens, start, stop)

    def spans(self, text: str) -> Tokens:
        """Start and end character of each token of a text."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise BadInput("text is cut between tokens, which needs a fast tokenizer (a tokenizer.json)")
        return Tokens(backend, text)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, special tokens and images left out."""
        return str(self.tokenizer.decode([i for i in ids if i < FIRST], skip_special_tokens=True))

    def token_text(self, token: int) -> str:
        """Text of one id, as a special token writes itself."""
        return str(self.tokenizer.decode([token], skip_special_tokens=False))

    def save(self, folder: Path) -> None:
        """Write the tokenizer and its chat template into a model's folder, and how its images are cut."""
        self.tokenizer.save_pretrained(folder)
        if self.patches is not None:
            self.patches.save(folder)

    def said(self, ids: Sequence[int]) -> str:
        """Text of a sampled turn for a parser: with special tokens, as some mark calls, but without its stop token."""
        ids = list(ids[:-1] if ids and ids[-1] in self.stop_ids else ids)
        return str(self.tokenizer.decode(ids, skip_special_tokens=False))

    def prompt(self, messages: Sequence[Message], tools: Sequence[Schema] | None = None) -> list[int]:
        """Ids of a conversation that the assistant speaks next in."""
        return self.with_images(self.encode(self.prompt_text(messages, tools)), images_of(messages))

    def image_tokens(self, images: Sequence[Image]) -> int:
        """Tokens that some images have in a prompt, beyond one for each."""
        if not images or (self.patches is None and self.counts_only):
            return 0
        patches = self._seeing()
        return sum(patches.grid(image).size - 1 for image in images)

    def with_images(self, ids: list[int], images: Sequence[Image]) -> list[int]:
        """Ids of a rendered text with the ids of its images in their places."""
        if not images or (self.patches is None and self.counts_only):
            return ids
        patches = self._seeing()
        places = [i for i, token in enumerate(ids) if token == patches.token]
        if len(places) != len(images):
            raise BadInput(
                f"the chat template shows {len(places)} of {len(images)} images; name one that shows them with "
                "agent.template=qwen2.5-vl"
            )
        made: list[int] = []
        for start, stop, image in zip([-1, *places], [*places, len(ids)], [*images, None], strict=True):
            made += ids[start + 1 : stop]
            made += image_ids(image, patches.grid(image)).tolist() if image is not None else ()
        return made

    def prompt_text(self, messages: Sequence[Message], tools: Sequence[Schema] | None = None) -> str:
        """The text of such a prompt."""
        if not tools and (frame := self._frame(tuple(m.role for m in messages))) is not None:
            contents = [self._content(m) for m in messages]
            if all(isinstance(content, str) for content in contents):
                return joined(frame, cast("list[str]", contents))
        return self._text(self._adapted(messages), True, tools)

    def _frame(self, roles: tuple[str, ...]) -> tuple[str, ...] | None:
        """What stands around the texts of a short conversation, where the template does not look at them."""
        if len(roles) > FRAMED or not set(roles) <= {"system", "user"}:
            return None
        if roles not in self._frames:
            self._frames[roles] = template_frame(self.tokenizer, roles)
        return self._frames[roles]

    def without_images(self, ids: Sequence[int], count: int) -> list[int]:
        """Ids of a prompt without its first images and the control tokens around them."""
        kept, before, marks = list[int](), 0, {self._special_ids.get(t) for t in IMAGE_BORDERS}
        for span in list(spans(np.asarray(ids, np.int64)))[:count]:
            inside = span.start > 0 and ids[span.start - 1] in marks
            around = int(inside and span.stop < len(ids) and ids[span.stop] in marks)
            kept += ids[before : span.start - around]
            before = span.stop + around
        return [*kept, *ids[before:]]

    def extend(
        self,
        prompt: Sequence[int],
        sampled: Sequence[int],
        new: Sequence[Message],
        tools: Sequence[Schema] | None = None,
    ) -> list[int]:
        """The next prompt of a conversation: all that was there, then the new messages.

        The new messages' ids are what the template writes after an assistant turn, whatever it makes of that turn. A
        turn that did not close itself is closed first, with tokens that count as prompt.
        """
        tail = self.with_images(self.encode(self.extension_text(new, tools)), images_of(new))
        return self.extended(prompt, sampled, tail)

    def extension_text(self, new: Sequence[Message], tools: Sequence[Schema] | None = None) -> str:
        """What the template writes after an assistant's words when new messages follow."""
        after = self._text([*_START, *self._adapted(new)], True, tools)
        if _MARK not in after:
            raise BadInput("the chat template leaves out earlier turns; use another with agent.template=…")
        return after[after.index(_MARK) + len(_MARK) :]

    def extended(self, prompt: Sequence[int], sampled: Sequence[int], tail: list[int]) -> list[int]:
        """A prompt, what was sampled, and the ids of `extension_text` without an end that was sampled already."""
        if (
            sampled and sampled[-1] in self._closers and self.end_id in tail[: self._closing]
        ):  # it closed its turn itself
            tail = tail[tail.index(self.end_id) + 1 :]
        return [*prompt, *sampled, *tail]

    # ---- what an assistant says ----

    def reply(self, content: str, calls: Sequence[ToolCall] = (), reasoning: str = "") -> list[int]:
        """Ids of a whole assistant turn as the template writes it, tool calls included, with its end token."""
        return [*self.encode(self._reply_text(content, calls, reasoning)), self.end_id]

    def _reply_text(self, content: str, calls: Sequence[ToolCall], reasoning: str) -> str:
        content = self._unended(content.encode("utf-8", "replace").decode())
        row: dict[str, Any] = {"role": "assistant", "content": content}
        if calls:
            functions = [{"name": c.name, "arguments": c.arguments or {}} for c in calls]
            row["tool_calls"] = [{"type": "function", "function": f} for f in functions]
        if reasoning:
            row["reasoning_content"] = reasoning
        whole = self._rendered([{"role": "user", "content": "a"}, row], False)
        if whole.startswith(self._opened) and whole.endswith(self._closing_text):
            said = whole[len(self._opened) : len(whole) - len(self._closing_text)]
            if all(c.name in said for c in calls):
                return said
        written = TOOL_WRITERS.get(self.parser, TOOL_WRITERS["hermes"])(calls) if calls else ""
        return "\n".join(part for part in (content, written) if part)  # a template that knows no calls

    def _unended(self, content: str) -> str:
        """An assistant's text with end-of-turn tokens broken into plain text; it may hold other control tokens."""
        for token in self._enders:
            content = content.replace(token, f"{token[0]} {token[1:]}")
        return content

    @cached_property
    def _enders(self) -> list[str]:
        return [token for token, number in self._special_ids.items() if number in self.stop_ids and len(token) > 1]

    @cached_property
    def _opened(self) -> str:
        """What stands before an assistant's first word, after the shortest question."""
        return self._rendered([{"role": "user", "content": "a"}], True)

    @cached_property
    def _closing_text(self) -> str:
        text = self._text(_START, False)
        return text[text.rindex(_MARK) + len(_MARK) :]

    # ---- the end of a turn ----

    @property
    def _special_ids(self) -> dict[str, int]:
        ids = dict(zip(self.tokenizer.all_special_tokens, self.tokenizer.all_special_ids, strict=True))
        return ids | {str(t): i for i, t in self.tokenizer.added_tokens_decoder.items() if t.special}

    def _end_of_turn(self) -> tuple[int, int]:
        """The token that the template closes a turn with, else the tokenizer's end token; and the closing's length."""
        text = self._text(_START, False)
        if _MARK not in text:
            raise BadInput("the chat template leaves out assistant turns; use another with agent.template=…")
        closing = self.encode(text[text.rindex(_MARK) + len(_MARK) :])
        special = set(self._special_ids.values())
        end = closing[0] if closing and closing[0] in special else self.tokenizer.eos_token_id
        if end is None:
            raise BadInput("the tokenizer has no end token and its chat template closes turns with none")
        return int(end), len(closing)
