"""A model that answers: prompts, conversations, questions about a document."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from recollect.library.event_loops import run_anywhere
from recollect.runtime.console import Console
from recollect.samplers.checkpoint_roles import NamedModels, named
from recollect.types import BadInput, Completion, Message, Sampling
from recollect.workflows.eval.eval_run import answer_with, question_task, reader

Prompt = str | Sequence[Message | Mapping[str, str]]


class LoadedPolicy:
    """A loaded model. It keeps its weights until it is closed, or nobody holds it any more."""

    def __init__(self, who: NamedModels) -> None:
        self.who = who
        self.path = str(who.path)
        self.policies = who.policies("")

    def generate(
        self,
        prompt: Prompt,
        *,
        max_tokens: int = 256,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        seed: int = 0,
    ) -> Completion:
        """One completion of a prompt: a text, which is a user's message, or messages. The same seed gives the same one.

        >>> import recollect
        >>> with recollect.load("tiny") as policy:
        ...     len(policy.generate("hello", max_tokens=4).ids) <= 4
        True
        """
        binding = self.policies.bindings["*"]
        given = [Message("user", prompt)] if isinstance(prompt, str) else [_message(m) for m in prompt]
        sampling = Sampling(temperature=temperature, max_tokens=max_tokens, stop=tuple(stop), seed=seed, key="generate")
        ids = binding.renderer.prompt(given)
        sampling = replace(sampling, stop_ids=tuple(binding.renderer.stop_ids))
        return run_anywhere(lambda: asyncio.run(_awaited(binding.policy, ids, sampling)))

    def ask(self, document: str | Path, question: str, *, quiet: bool = True) -> str:
        """The answer to a question about a document (a file, or its text), read as the run's agent reads."""
        task = question_task(document, question)
        console = Console(quiet)
        cfg = reader(self.who, task, console.say)
        return run_anywhere(lambda: answer_with(self.policies, cfg, task, console))

    def close(self) -> None:
        """Give back connections and servers."""
        self.policies.close()

    def __enter__(self) -> LoadedPolicy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"LoadedPolicy({self.path!r})"


async def _awaited(policy: Any, ids: Sequence[int], sampling: Sampling) -> Completion:
    done: Completion = await policy.generate(ids, sampling)
    return done


def _message(given: Message | Mapping[str, str]) -> Message:
    if isinstance(given, Message):
        return given
    try:
        return Message(str(given["role"]), str(given["content"]))
    except (KeyError, TypeError):
        raise BadInput(f"a message has a role and a content, not {given!r}") from None


def load(path: str | Path, *, settings: Mapping[str, Any] | None = None) -> LoadedPolicy:
    """A policy from a run, a checkpoint, a model folder, a GGUF file, a hub name, ``"smollm2"`` or ``"tiny"``.

    >>> import recollect
    >>> recollect.load("tiny")
    LoadedPolicy('tiny')
    """
    return LoadedPolicy(named(str(path), [], list((settings or {}).items()), reads=True))
