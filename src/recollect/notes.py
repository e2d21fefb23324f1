"""What a run says at its start about settings that mean something other here than where they come from."""

from __future__ import annotations

from collections.abc import Iterator

from recollect.config import Config


def notes(cfg: Config) -> Iterator[str]:
    """One line for each such setting."""
    name = cfg.actor_rollout_ref.rollout.name
    if name != "engine":
        yield f"actor_rollout_ref.rollout.name={name}: there is no {name} server; the engine of this process samples"
    if "google_search" in cfg.agent.tools and not (cfg.search.endpoint or cfg.search.corpus):
        yield (
            "agent.tools has google_search, but neither search.endpoint nor search.corpus is set: "
            "every search will be answered with an error"
        )
