"""Tasks with too long a first prompt are left out or refused before anything is sampled."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from recollect.agents.first_prompt import first_messages, too_long
from recollect.chat import Renderer
from recollect.config import Config
from recollect.registries import AGENTS
from recollect.types import BadInput, Task


def within_limits(tasks: Sequence[Task], cfg: Config, training: bool, say: Callable[[str], None]) -> list[Task]:
    """The tasks that may be asked: overlong training tasks are left out, or overlong tasks refused, if so configured.

    Only agents that converse from the question have this limit; a recurrent agent has limits of its own.
    """
    data, leave_out = cfg.data, training and cfg.data.filter_overlong_prompts
    if not AGENTS.knows(cfg.agent.agent_type, "asks_first") or not (leave_out or data.truncation == "error"):
        return list(tasks)
    renderer = _renderer(cfg)
    lengths = [len(renderer.prompt(first_messages(task, cfg))) for task in tasks]
    kept = [task for task, length in zip(tasks, lengths, strict=True) if length <= data.max_prompt_length]
    if len(kept) == len(tasks):
        return kept
    if not leave_out:
        i = next(i for i, length in enumerate(lengths) if length > data.max_prompt_length)
        raise BadInput(f"{tasks[i].place or tasks[i].id}: {too_long(lengths[i], data.max_prompt_length)}")
    say(
        f"left out {len(tasks) - len(kept)} of {len(tasks)} training tasks: longer than {data.max_prompt_length} tokens"
    )
    if not kept:
        raise BadInput(
            f"all {len(tasks)} training tasks are longer than data.max_prompt_length={data.max_prompt_length}"
        )
    return kept


def token_counter(cfg: Config) -> Callable[[str], int]:
    """A function that counts the policy's tokens of a text."""
    renderer = _renderer(cfg)
    return lambda text: len(renderer.encode(text))


def _renderer(cfg: Config) -> Renderer:
    """The policy's renderer, which limits on the data need before the model is loaded."""
    from recollect.models.load import load_renderer

    return load_renderer(cfg.actor_rollout_ref.model.path, cfg.agent.template)
