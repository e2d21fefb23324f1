"""How long a run will take here: its RL steps, SFT before them, and evaluations on held-out data."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

from recollect.chat import Renderer
from recollect.config import Config
from recollect.domains.families import has_lengths
from recollect.files.rows import expand
from recollect.models.load import context_window, load_config
from recollect.packing.tree import forest
from recollect.training.sft.sources import batches_of, is_stored, paths_of
from recollect.types import Task
from recollect.workflows.dry_run.pace import Pace, StepTime, computed, counted, pace_here, sampling_time
from recollect.workflows.dry_run.predict import TokenEstimate, tokens

PLAYED = 32  # tasks that an oracle plays to see how long its turns are
MOST_READ = 64 << 20  # bytes of stored conversations that are read to see how long they are


@dataclass(frozen=True)
class RunTime:
    """Seconds of the parts of a run; None where a part cannot be told."""

    step: StepTime
    steps: int
    sft: float | None = 0.0
    evaluation: float | None = 0.0

    @property
    def rl(self) -> float:
        return self.steps * self.step.total

    @property
    def total(self) -> float:
        """Everything that can be told."""
        return self.rl + (self.sft or 0.0) + (self.evaluation or 0.0)

    def row(self) -> dict[str, float]:
        """The parts as numbers with three digits; a part that cannot be told is left out."""
        step = self.step
        numbers: dict[str, float | None] = {"rollout": step.rollout, "update": step.update}
        numbers |= {
            "step": step.total,
            "steps": self.rl,
            "sft": self.sft,
            "evaluation": self.evaluation,
            "total": self.total,
        }
        return {name: float(f"{value:.3g}") for name, value in numbers.items() if value is not None}


def run_time(
    cfg: Config, steps: int, made: TokenEstimate, held_out: Sequence[Task], renderer: Renderer
) -> RunTime | None:
    """The time of a run on this machine, if every turn is as long as it may be; None where that cannot be told."""
    pace = pace_here(cfg)
    if pace is None:
        return None
    return RunTime(
        counted(cfg, made, pace),
        steps,
        sft_time(cfg, renderer, pace),
        evaluation_time(cfg, steps, held_out, renderer, pace),
    )


def sft_time(cfg: Config, renderer: Renderer, pace: Pace) -> float | None:
    """Seconds of the supervised updates before RL."""
    if cfg.sft.steps == 0 or cfg.data.offline_files:
        return 0.0
    size = imitated_tokens(cfg, renderer)
    return None if size is None else cfg.sft.steps * (size * pace.train + pace.optimizer)


def imitated_tokens(cfg: Config, renderer: Renderer) -> float | None:
    """Tokens that the first supervised update computes; what sequences share counts once."""
    few = deepcopy(cfg)
    few.sft.workers = 0
    if not is_stored(few):
        limit = few.data.train_max_samples
        few.data.train_max_samples = PLAYED if limit < 0 else min(PLAYED, limit)
    elif sum(Path(name).stat().st_size for name in expand(paths_of(few)) if Path(name).is_file()) > MOST_READ:
        return None
    batch = batches_of(few, renderer, context_window(load_config(cfg.actor_rollout_ref.model.path)))[0]
    if not isinstance(batch, Sequence):  # packed already
        return float(len(batch.tokens))
    trees = forest([s.ids for s in batch], [s.group for s in batch])
    return float(sum(tree.size for tree in trees))


def evaluation_time(cfg: Config, steps: int, held_out: Sequence[Task], renderer: Renderer, pace: Pace) -> float | None:
    """Seconds of all evaluations on held-out data; None for made-up documents, whose lengths differ."""
    if has_lengths(cfg):
        return None
    if not held_out:
        return 0.0
    n = cfg.actor_rollout_ref.rollout.val_kwargs.n
    return evaluations(cfg, steps) * sampling_time(
        *computed(cfg, tokens(cfg, held_out, renderer), len(held_out), n), pace
    )


def evaluations(cfg: Config, steps: int) -> int:
    """How often a run measures held-out success: before and after training, after SFT, and every trainer.test_freq."""
    trainer = cfg.trainer
    before = int(trainer.val_before_train)
    if trainer.test_freq < 0:
        return before
    between = (steps - 1) // trainer.test_freq if trainer.test_freq else 0
    return before + int(cfg.sft.steps > 0) + max(0, between) + 1
