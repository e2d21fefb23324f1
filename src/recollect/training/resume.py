"""Where a run starts: fresh, from its own newest checkpoint, or from what trainer.resume_from_path names."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recollect.config import Config
from recollect.runs.directory import RunDirectory
from recollect.training import checkpoint
from recollect.training.learner.learner import Learner, ValueLearner
from recollect.types import BadInput

BACK = "resumed.json"  # remembers that the run went back to an earlier checkpoint of its own
OF_ITS_RUN = ("seconds", "metrics_size", "best", "best_step", "stale", "stopped")  # another run has its own


@dataclass
class Start:
    """A checkpoint that was loaded, and what it remembers."""

    path: Path
    state: dict[str, Any]
    foreign: bool  # it belongs to another run


def went_back_to(run: Path) -> str | None:
    """The checkpoint of its own that a run went back to last."""
    try:
        return str(json.loads((run / BACK).read_text())["from"])
    except (OSError, ValueError, KeyError):
        return None


def needs_reference(cfg: Config) -> bool:
    """Whether the run has a reference policy."""
    return cfg.actor_rollout_ref.actor.use_kl_loss or cfg.algorithm.use_kl_in_reward


def keeps_first(cfg: Config) -> bool:
    """Whether the weights that RL started from, step-0, are needed to the end; with LoRA the base model is there."""
    return needs_reference(cfg) and cfg.actor_rollout_ref.model.lora_rank == 0


def named_start(
    cfg: Config, learner: Learner, critic: ValueLearner | None, total: int, warn: Callable[[str], None]
) -> Start | None:
    """Load what trainer.resume_from_path names, before anything is written; None when the run goes on by itself."""
    run = RunDirectory.of(cfg).path
    own = checkpoint.names(run / "checkpoints", "step")
    if cfg.trainer.resume_mode != "resume_path":
        if own and cfg.trainer.resume_mode == "auto":
            _within(int(own[-1].removeprefix("step-")), total, run)
        return None
    given = cfg.trainer.resume_from_path
    if not given:
        raise BadInput(
            "trainer.resume_mode=resume_path needs trainer.resume_from_path, a checkpoint or a run directory"
        )
    path = Path(given).expanduser().resolve()
    foreign = run.resolve() not in path.parents
    if not foreign and went_back_to(run) == str(path):
        return None  # it did so already; what has been made since is kept
    if foreign and own and path != run.resolve():
        return None  # this run has begun; it goes on from its own checkpoints
    start = _load(path, given, learner, critic, foreign and path != run.resolve(), warn)
    _within(int(start.state["step"]), total, start.path)
    if start.foreign and keeps_first(cfg) and start.state["step"] and not (start.path.parent / "step-0").is_dir():
        raise BadInput(f"{start.path}: the reference of the KL term, step-0, is not beside it any more")
    return start


def _load(
    path: Path, given: str, learner: Learner, critic: ValueLearner | None, foreign: bool, warn: Callable[[str], None]
) -> Start:
    name = f"trainer.resume_from_path={given} (or trainer.load_checkpoint)"
    if not path.is_dir():
        raise BadInput(f"{name}: there is no such folder")
    if (path / "checkpoints").is_dir():
        folder = path / "checkpoints"
        state = checkpoint.load_newest(folder, "step", learner, warn, critic)
        if state is None:
            raise BadInput(f"{name}: this run has no checkpoint that can be read")
        path = folder / f"step-{state['step']}"
    else:
        if not (path / checkpoint.STATE).is_file():
            raise BadInput(f"{name} is not a checkpoint: it has no {checkpoint.STATE}")
        _refuse_other_kinds(checkpoint.read_state(path), name, given)
        try:
            state = checkpoint.load(path, learner, critic)
        except Exception as error:
            reason = " ".join(str(error).split())[:200]
            raise BadInput(f"{name} does not fit this model and optimizer, or is damaged: {reason}") from None
    _refuse_other_kinds(state, name, given)
    if foreign:
        state = {key: value for key, value in state.items() if key not in OF_ITS_RUN}
    return Start(path, state, foreign)


def _refuse_other_kinds(state: Mapping[str, Any], name: str, given: str) -> None:
    if "metrics_size" not in state or "held_out" not in state:
        raise BadInput(f"{name} is not a checkpoint of RL; start from it with actor_rollout_ref.model.path={given}")


def _within(step: int, total: int, where: Path) -> None:
    if step > total:
        raise BadInput(f"{where} is at step {step}, past trainer.total_training_steps={total}")
