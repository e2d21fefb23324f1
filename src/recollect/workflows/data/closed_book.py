"""Find the questions that a model answers without their document: they do not test a memory."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from recollect.rewards.text import sub_em
from recollect.runtime.console import Console
from recollect.types import BadInput, Message, Sampling, Task

PROMPT = "Answer the question in a few words. If you do not know, say so.\n\n{}"
TOKENS = 64


def answered(rows: Sequence[Mapping[str, Any]], url: str, console: Console) -> list[bool]:
    """For each question, whether the endpoint's answer contains an accepted one. A failed call stops everything."""
    from recollect.policies.endpoint import Endpoint, EndpointError

    endpoint = Endpoint(url)
    endpoint.check()

    async def ask(row: Mapping[str, Any], advance: Any) -> bool:
        task = Task(str(row["id"]), str(row["question"]), answers=(str(row["answer"]),))
        prompt = [Message("user", PROMPT.format(task.question))]
        done = await endpoint.chat(prompt, None, Sampling(temperature=0.0, max_tokens=TOKENS))
        advance("", 1)
        return sub_em(done.text, task) > 0

    async def ask_all(advance: Any) -> list[bool]:
        return list(await asyncio.gather(*(ask(row, advance) for row in rows)))

    try:
        with console.progress("questions without their document", len(rows)) as advance:
            return asyncio.run(ask_all(advance))
    except EndpointError as error:
        raise BadInput(f"--closed-book {url}: {error}") from None
    finally:
        endpoint.close()
