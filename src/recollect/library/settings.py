"""The arguments of `recollect.train` and its like, as overrides of a recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from recollect.config.compose import Override
from recollect.library.given import files_of, name_of

Function = str | Callable[..., Any]
MODEL, TRAIN, HELD_OUT = "actor_rollout_ref.model.path", "data.train_files", "data.val_files"


def overrides(
    settings: Mapping[str, Any] | None,
    *,
    model: str | Path | None = None,
    tasks: Any = None,
    held_out: Any = None,
    agent: Function | None = None,
    reward: Function | None = None,
    tools: Sequence[Function] | None = None,
    out: str | Path | None = None,
) -> list[Override]:
    """What the arguments say, as keys and values; ``settings`` come last, so they win."""
    given = dict(settings or {})
    place = out if out is not None else given.get("trainer.default_local_dir")
    folder = (Path(str(place)).expanduser().parent if place else Path("runs")) / "tasks"
    said: dict[str, Any] = {}
    if model is not None:
        said[MODEL] = str(model)
    if tasks is not None:
        said[TRAIN] = files_of(tasks, folder, "tasks")
    if held_out is not None:
        said[HELD_OUT] = files_of(held_out, folder, "held_out")
    if agent is not None:
        said["agent.agent_type"] = name_of(agent, "agent")
    if reward is not None:
        said["agent.reward_name"] = name_of(reward, "reward")
    if tools is not None:
        said["agent.tools"] = [name_of(tool, "tools") for tool in tools]
    if out is not None:
        said["trainer.default_local_dir"] = str(out)
    return list({**said, **given}.items())
