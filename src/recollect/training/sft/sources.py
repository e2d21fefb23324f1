"""From settings to batches: what `sft.data` means."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from recollect.chat import Renderer
from recollect.config import Config
from recollect.oracles.play import check_oracle
from recollect.training.sft.batches import StoredBatches
from recollect.training.sft.expert import ExpertBatches
from recollect.training.sft.oracle import oracle_batches, oracle_conversations
from recollect.training.sft.sequences import LoadedSequences, SequenceLimits, read_samples
from recollect.training.sft.skill import SkillBatches
from recollect.types import BadInput, Sample

PLAYED = ("expert", "sloppy")  # sft.data: scripted agents of made-up tasks
FILES = "files"  # sft.data: what data.train_files names
ORACLE = "oracle"  # sft.data: a script that knows the answers to the tasks of data.train_files


def is_stored(cfg: Config) -> bool:
    """True when training imitates what is stored somewhere."""
    return cfg.sft.data not in (*PLAYED, "skill", ORACLE)


def limits_of(cfg: Config, window: int) -> SequenceLimits:
    """What may be trained on: no sequence longer than the model's window."""
    longest = min(cfg.sft.max_length, window) if cfg.sft.max_length else window
    return SequenceLimits(cfg.sft.min_reward, longest, cfg.sft.overlong)


def check_source(cfg: Config) -> None:
    """Refuse an `sft.data` that cannot be imitated, before a run begins; what its files hold is seen later."""
    name = cfg.sft.data
    if is_stored(cfg):
        paths_of(cfg)
    if name == ORACLE:
        if not cfg.data.train_files:
            raise BadInput("sft.data=oracle plays the tasks of data.train_files; for made-up ones take sft.data=expert")
        check_oracle(cfg)
    if name in PLAYED and cfg.data.train_files:
        raise BadInput(
            f"sft.data={name} plays made-up documents only; give sft.data a run directory or a jsonl file, or set it "
            "to oracle"
        )


def batches_of(
    cfg: Config, renderer: Renderer, window: int = 1 << 30, say: Callable[[str], None] = lambda text: None
) -> Any:
    """The batches that sft.data names; item b depends on the settings and b alone."""
    check_source(cfg)
    name = cfg.sft.data
    if name == "skill":
        return SkillBatches(cfg, renderer)
    if name in PLAYED:
        return ExpertBatches(cfg, renderer)
    if name == ORACLE:
        return oracle_batches(cfg, renderer, limits_of(cfg, window), say)
    loaded = read_samples(paths_of(cfg), renderer, limits_of(cfg, window))
    say(f"SFT on {loaded.summary()}")
    _refuse_nothing(cfg, loaded)
    return StoredBatches(loaded.samples, cfg.sft.batch_size, cfg.trainer.seed)


def held_out_sequences(cfg: Config, renderer: Renderer, window: int) -> list[Sample]:
    """Sequences to measure the loss on while an oracle is imitated; none unless sft.test_freq asks for it."""
    if cfg.sft.data != ORACLE or cfg.sft.test_freq <= 0 or not cfg.data.val_files:
        return []
    return oracle_conversations(cfg, renderer, limits_of(cfg, window))


def paths_of(cfg: Config) -> list[str]:
    """The files and runs to imitate."""
    if cfg.sft.data == FILES:
        if not cfg.data.train_files:
            raise BadInput("sft.data=files: name them with data.train_files")
        return cfg.data.train_files
    if not Path(cfg.sft.data).expanduser().exists():
        raise BadInput(
            f"sft.data={cfg.sft.data}: known are expert, sloppy, skill, oracle, files, or an existing run or data file"
        )
    return [cfg.sft.data]


def _refuse_nothing(cfg: Config, loaded: LoadedSequences) -> None:
    if not loaded.samples:
        where = ", ".join(paths_of(cfg))
        raise BadInput(f"nothing to train on in {where} with sft.min_reward={cfg.sft.min_reward}: {loaded.summary()}")
