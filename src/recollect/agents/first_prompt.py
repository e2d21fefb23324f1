"""The first prompt of an agent that converses, and what happens to one that is too long.

`data.max_prompt_length` counts the whole rendered prompt. Training tasks over it are left out where
`data.filter_overlong_prompts` says so; otherwise `data.truncation` refuses them or cuts the question's text.
"""

from __future__ import annotations

from collections.abc import Sequence

from recollect.agents.wording import question_turns
from recollect.chat import Renderer
from recollect.chat.renderer import images_of
from recollect.config import Config
from recollect.config.prompt_file import Wording, given_wording
from recollect.data.columns import messages_of
from recollect.data.documents import Spans
from recollect.images.content import shared_out
from recollect.types import Message, Task

SYSTEM = "system"  # the name of a system prompt in a file of prompts


def given_system(cfg: Config) -> str | None:
    """The system prompt that a file or agent.system_prompt gives; None: the agent's own, if it has one."""
    given = given_wording(cfg, SYSTEM)
    return cfg.agent.system_prompt if given is None else given.text


def first_messages(task: Task, cfg: Config, said: Wording | None = None) -> list[Message]:
    """The system prompt if there is one, what the data row says before the question, and the question.

    ``said`` takes the place of the system prompt and demonstrations that the settings give.
    """
    said = said or given_wording(cfg, SYSTEM)
    system = cfg.agent.system_prompt if said is None else said.text
    before = messages_of(task.fields, cfg.data.prompt_key)[:-1] if task.fields else []
    *theirs, mine = shared_out([*(m["content"] for m in before), task.question], task.images)
    earlier = [Message(m["role"], m["content"], images) for m, images in zip(before, theirs, strict=True)]
    if system:
        earlier = [Message("system", system), *(m for m in earlier if m.role != "system")]
    shown = question_turns(said) if said is not None else []
    return [*earlier, *shown, Message("user", task.question, mine)]


def fitted(messages: Sequence[Message], renderer: Renderer, limit: int, truncation: str) -> list[Message]:
    """The messages, with the last one cut so that the rendered prompt has at most ``limit`` tokens."""
    text = renderer.prompt_text(messages)
    more = renderer.image_tokens(images_of(messages))
    bytes_fit = len(text.encode()) + more <= limit  # a token has at least a byte
    if bytes_fit or (length := len(renderer.encode(text)) + more) <= limit:
        return list(messages)
    if truncation == "error" or more:
        raise ValueError(too_long(length, limit) + (" (images are not cut)" if more else ""))
    *earlier, last = messages
    spans = renderer.spans(last.content)
    keep = limit - (length - len(spans))
    while keep > 0:
        cut = [*earlier, Message(last.role, shortened(last.content, spans, keep, truncation))]
        if (over := len(renderer.prompt(cut)) - limit) <= 0:  # tokens may merge differently at a cut
            return cut
        keep -= over
    raise ValueError(f"{too_long(length, limit)}, and what stands around the question fills that alone")


def shortened(text: str, spans: Spans, keep: int, truncation: str) -> str:
    """``keep`` tokens of a text: its end (left is cut), its beginning (right), or both ends (center)."""
    if keep >= len(spans):
        return text
    head = {"left": 0, "right": keep, "center": (keep + 1) // 2}[truncation]
    tail = keep - head
    end = spans[head - 1][1] if head else 0
    start = max(end, spans[len(spans) - tail][0]) if tail else len(text)
    return text[:end] + text[start:]


def cut_text(text: str, renderer: Renderer, limit: int, truncation: str) -> str:
    """A text of at most ``limit`` tokens; a longer one is cut, or with ``error`` refused."""
    if len(text.encode()) <= limit or len(spans := renderer.spans(text)) <= limit:  # a token has at least a byte
        return text
    if truncation == "error":
        raise ValueError(f"{too_many(text, renderer, limit)}")
    return shortened(text, spans, limit, truncation)


def too_many(question: str, renderer: Renderer, limit: int) -> str:
    """The message about a question that is too long and may not be cut."""
    key = "recurrent.memory.config.max_prompt_length"
    return (
        f"a question has {len(renderer.encode(question))} tokens, more than {key}={limit} "
        "(data.truncation=left, right or center cuts it)"
    )


def too_long(length: int, limit: int) -> str:
    """The message about a prompt that is too long and may not be cut."""
    return (
        f"the prompt has {length} tokens, more than data.max_prompt_length={limit} (data.truncation=left, right or "
        "center cuts it, data.filter_overlong_prompts=True leaves such training tasks out)"
    )


def window_problem(cfg: Config, renderer: Renderer, window: int, question: str) -> str:
    """The message when a question and its completion cannot fit the model's window; empty when they fit."""
    length = min(len(renderer.prompt(first_messages(Task("", question), cfg))), cfg.data.max_prompt_length)
    need = length + cfg.data.max_response_length
    if need <= window:
        return ""
    return (
        f"the model's window of {window} tokens is too small: prompt {length} + data.max_response_length "
        f"{cfg.data.max_response_length} = {need}; lower data.max_response_length or data.max_prompt_length"
    )
