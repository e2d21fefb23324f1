"""The server takes images in messages where its model sees, as data URLs and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from recollect.config.compose import compose
from recollect.images.image_files import to_url
from recollect.samplers.bindings import FrozenModel, RoleBinder
from recollect.serve.server import ServeLimits, Server
from recollect.types import IMAGE_MARK, Message, Sampling
from tests.seeing import pictures, save_seeing
from tests.serve.test_server import Running

A, B, _ = pictures()


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> FrozenModel:
    folder: Path = save_seeing(tmp_path_factory.mktemp("served") / "model")
    cfg = compose(None, ["trainer.threads=1", "trainer.device=cpu", "agent.template=qwen2.5-vl"])
    return RoleBinder(cfg, None).loaded(str(folder))


@pytest.fixture(scope="module")
def client(seeing: FrozenModel) -> Iterator[openai.OpenAI]:
    made = Running(Server(seeing.sampler, seeing.renderer, "vl", ServeLimits(max_tokens=50, max_body=200_000)))
    yield made.client()
    made.stop()


def ask(client: openai.OpenAI, *urls: str, **options: Any) -> Any:
    parts: list[Any] = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    said: Any = [{"role": "user", "content": [{"type": "text", "text": "How many?"}, *parts]}]
    return client.chat.completions.create(model="vl", messages=said, max_tokens=5, temperature=0, **options)


def test_what_is_said_to_images(client: openai.OpenAI, seeing: FrozenModel) -> None:
    prompt = seeing.renderer.prompt([Message("user", f"How many?{IMAGE_MARK}{IMAGE_MARK}", (A, B))])
    made = ask(client, to_url(A), to_url(B))
    assert made.usage.prompt_tokens == len(prompt)
    sampling = Sampling(temperature=0, max_tokens=5, stop_ids=seeing.renderer.stop_ids)
    assert made.choices[0].message.content == asyncio.run(seeing.sampler.generate(prompt, sampling)).text
    one, other = (ask(client, to_url(image), logprobs=True).choices[0].logprobs for image in (A, B))
    assert one != other


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://127.0.0.1/x.png", "not fetched"),
        ("file:///etc/passwd", "given as a data URL"),
        ("pictures/a.png", "given as a data URL"),
        ("data:image/png;base64,AAAA", "not an image"),
    ],
)
def test_what_is_no_image_is_refused(client: openai.OpenAI, url: str, why: str) -> None:
    with pytest.raises(openai.BadRequestError, match=why):
        ask(client, url)


def test_too_many_images(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="more than 64 images"):
        ask(client, *[to_url(pictures(1, ((16, 16),))[0])] * 65)
