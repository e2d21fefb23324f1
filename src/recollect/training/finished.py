"""Whether a run is done, and still whole: its report counts only while its checkpoints can be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recollect.models.checkpoints import damage
from recollect.runs.directory import RunDirectory, remove_tree
from recollect.runtime.console import Console
from recollect.training import checkpoint
from recollect.training.rl.validate import BEST
from recollect.types import BadInput


def finished(run: RunDirectory, total: int | None, console: Console) -> dict[str, Any] | None:
    """The report of a run that is done; None where its newest checkpoint is damaged, so that it has to go on."""
    done = run.read_json("report.json")
    if done is None or not (done["steps"] == total or done.get("stopped")):
        return None
    folder = run.path / "checkpoints"
    newest = [folder / name for name in checkpoint.names(folder, "step")[-1:]]
    wrong = next(filter(None, map(_wrong_with, newest)), "")
    spoilt = _wrong_with(folder / BEST) if (folder / BEST).is_dir() else ""
    if not wrong and spoilt:
        raise BadInput(f"the checkpoint {BEST} is damaged: {spoilt}; delete it, or move {run.path} away to train again")
    if not wrong:
        known = max((int(checkpoint.read_state(path)["metrics_size"]) for path in newest), default=0)
        if run.metrics_size() < known:
            console.warn(f"{run.metrics_path} has lost rows: {run.metrics_size():,} of {known:,} bytes are there")
        return dict(done)
    if spoilt:  # it may be the same files, and is made again with them
        remove_tree(folder / BEST)
    console.warn(f"{run.path} was complete, but its checkpoint {newest[0].name} is damaged: {wrong}")
    return None


def _wrong_with(path: Path) -> str:
    try:
        checkpoint.checked_state(path, checkpoint.NEEDED)
    except (OSError, ValueError) as error:
        return str(error)
    return damage(path)
