"""The run: supervised training, evaluation, the trainer."""

from __future__ import annotations

from dataclasses import dataclass, field

from recollect.config.schema.bounds import (
    choice,
    each_number,
    each_positive,
    from_minus_one,
    must,
    not_negative,
    positive,
)
from recollect.config.schema.policy import Optim
from recollect.registries import TRACKERS

MOST_STALE = 16  # batches that wait are kept in memory and in every checkpoint
PARTIAL = ": which turn gets which weights would depend on timing, and no run could be repeated; set False"
OWN_LOGGERS = ("console", "jsonl")  # a line per step in the terminal; metrics.jsonl, which is always written


@dataclass
class SFT:
    """Supervised training: before RL in `train` when steps > 0, or alone with `recollect sft`."""

    steps: int = not_negative(0)  # updates; 0: none in `train`, trainer.total_epochs over the files in `recollect sft`
    batch_size: int = positive(64)  # sequences per update
    # expert or sloppy (of made-up tasks), oracle (knows the answers of data.train_files), skill, files or a run/jsonl
    data: str = "expert"
    min_reward: float = 0.0  # with stored trajectories: train on those that reached this reward (also: min_reward)
    max_length: int = not_negative(0)  # tokens of the longest sequence; 0: the model's window
    overlong: str = choice("cut", "drop", "error")  # a longer conversation loses its end, is left out, or is an error
    # updates between measurements on held-out conversations; -1: only before and after
    test_freq: int = from_minus_one(-1)
    workers: int = not_negative(0)  # processes that prepare batches
    # updates between rows of metrics; 0: about twenty rows, at least one every 50 updates
    log_freq: int = not_negative(0)
    save_freq: int = from_minus_one(500)  # updates between checkpoints; -1: only at the end
    export_dtype: str = choice("float32", "bfloat16")  # type of the final `model` folder of `recollect sft`
    optim: Optim = field(default_factory=lambda: Optim(lr=1e-3, lr_warmup_steps=20, lr_scheduler_type="cosine"))


@dataclass
class Evaluation:
    """The final evaluation and report."""

    lengths: list[int] = each_positive([1, 4, 16, 64, 256])  # multiples of the training length
    tasks: list[int] = each_positive([256, 128, 64, 32, 16])  # held-out documents at each length
    # the first made-up held-out task; tasks far from it are fresh, no setting was chosen by them
    first: int = not_negative(0)


@dataclass
class Trainer:
    """The run."""

    project_name: str = "recollect"  # first part of the run directory
    experiment_name: str = "default"  # second part of the run directory
    default_local_dir: str = ""  # the run directory; default runs/<project_name>/<experiment_name>
    total_training_steps: int | None = not_negative(None)  # RL steps; 0: none; default: total_epochs over the data
    total_epochs: int = positive(1)  # passes over the data when total_training_steps is not given
    # where metrics go; metrics.jsonl is always written
    logger: list[str] = choice(*OWN_LOGGERS, of=TRACKERS, default=["console"], own=True)
    nnodes: int = positive(1)  # nodes with ranks; more than 1: nodes of a Ray cluster
    node_wait_s: float = positive(300.0)  # how long Ray may take to give a node, at the start and for a lost one
    # ranks of a node: one for each GPU, or so many processes with device=cpu; 0 and 1 on one node: this process alone
    n_gpus_per_node: int = not_negative(1)
    gpus: list[int] = each_number()  # the numbers of the GPUs that train, one for each rank; none: the first ones
    critic_warmup: int = not_negative(0)  # first steps in which only the critic learns
    # L: the batch of step k is sampled by version max(0, k - L) of the weights, beside earlier updates; 0: synchronous
    max_staleness: int = must(0, lambda value: 0 <= value <= MOST_STALE, f" must be from 0 to {MOST_STALE}")
    # attempts that go on with new weights; only False here
    partial_rollout: bool = must(False, lambda value: not value, PARTIAL)
    # steps between checkpoints; 0: only at the end; -1: none at all, and nothing to go on from
    save_freq: int = from_minus_one(10)
    # steps between validations; 0: only before and after; -1: none in training or after it
    test_freq: int = from_minus_one(0)
    val_before_train: bool = True  # measure held-out success before training
    val_only: bool = False  # only measure held-out success
    best_metric: str | None = None  # keep the checkpoint with the largest value of this metric, as `best`
    patience: int = not_negative(0)  # stop after so many validations without a better best_metric; 0: never
    max_ckpt_to_keep: int | None = positive(3)  # older checkpoints are deleted; null: none is
    # auto: from the newest checkpoint; disable: anew, and an old run moves away; resume_path: from resume_from_path
    resume_mode: str = choice("auto", "disable", "resume_path")
    resume_from_path: str | None = None  # with resume_path: the checkpoint to go on from
    # remote copy of checkpoints; only null here
    default_hdfs_dir: str | None = must(None, lambda place: False, ": checkpoints stay in the run directory; set null")
    seed: int = not_negative(0)  # of everything
    device: str = choice("auto", "cpu", "cuda")  # auto: a GPU if there is one
    threads: int = not_negative(0)  # CPU threads; 0: chosen from the model's size
