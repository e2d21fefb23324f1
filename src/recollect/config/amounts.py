"""A bound on the attempts of a run at once: numbers that no memory can hold are refused before the start."""

from __future__ import annotations

from collections.abc import Iterator

from recollect.config import Config

MOST = 1_000_000  # attempts of a step, of an evaluation, or of a command
ROLLOUT = "actor_rollout_ref.rollout"


def problems(cfg: Config) -> Iterator[str]:
    """One line for each number beyond the bound."""
    data, rollout, held_out = cfg.data, cfg.actor_rollout_ref.rollout, cfg.evaluation
    batch, n = data.train_batch_size, rollout.n
    asked = {f"data.train_batch_size={batch} × {ROLLOUT}.n={n}": batch * n}
    asked[f"sft.batch_size={cfg.sft.batch_size}"] = cfg.sft.batch_size
    if not (data.val_files or data.train_files):  # made up, as many as are asked for
        n = rollout.val_kwargs.n
        asked[f"data.val_max_samples={data.val_max_samples} × {ROLLOUT}.val_kwargs.n={n}"] = data.val_max_samples * n
        asked |= {f"evaluation.tasks={list(held_out.tasks)}": max(held_out.tasks, default=0)}
    for what, count in asked.items():
        if said := too_many(what, count):
            yield said


def too_many(what: str, count: int) -> str:
    """The message about too many attempts; empty for a number within the bound."""
    return f"{what} is {count:,} at once; the limit is {MOST:,}" if count > MOST else ""
