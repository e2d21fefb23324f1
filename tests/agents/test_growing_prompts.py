"""The next prompt of a conversation: what was there, what was sampled, and what is new, tokenised in either way."""

from __future__ import annotations

import asyncio

from recollect.agents.session import Conversation
from recollect.chat import Renderer
from recollect.types import Completion, Message

USER = Message("user", "what does mira hold?")


def both_ways(talk: Conversation, renderer: Renderer) -> list[int]:
    ids = talk.upcoming(renderer)
    assert asyncio.run(talk.upcoming_soon(renderer)) == ids
    return ids


def said(talk: Conversation, renderer: Renderer, text: str) -> list[int]:
    """Accept the next prompt, and have the model say something; returns the sampled ids."""
    talk.accept(talk.upcoming(renderer))
    ids = renderer.encode(text)
    talk.add_reply(Completion(tuple(ids), (0.0,) * len(ids), "stop", 0, text))
    return ids


def test_the_first_prompt_is_the_templates(renderer: Renderer) -> None:
    talk = Conversation([USER])
    assert both_ways(talk, renderer) == renderer.prompt([USER])
    talk.accept(both_ways(talk, renderer))
    assert both_ways(talk, renderer) == talk.prompt


def test_a_message_follows_what_was_sampled(renderer: Renderer) -> None:
    talk = Conversation([USER])
    sampled = said(talk, renderer, "472")
    talk.add(USER)
    assert both_ways(talk, renderer) == renderer.extend(talk.prompt, sampled, [USER])


def test_text_may_go_on_inside_the_turn(renderer: Renderer) -> None:
    talk = Conversation([USER])
    sampled = said(talk, renderer, "<search>mira</search>")
    talk.add(Message("user", "\n<information>mira holds 472.</information>\n"), inline=True)
    grown, start = both_ways(talk, renderer), len(talk.prompt)
    assert grown[: start + len(sampled)] == talk.prompt + sampled
    assert renderer.decode(grown[start:]).endswith("</search>\n<information>mira holds 472.</information>\n")
