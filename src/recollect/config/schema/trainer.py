"""The run: supervised training, evaluation, the trainer."""

from __future__ import annotations

from dataclasses import dataclass, field

from recollect.config.schema.policy import Optim

OWN_LOGGERS = ("console", "jsonl")  # a line per step in the terminal; metrics.jsonl, which is always written


@dataclass
class SFT:
    """Supervised training: before RL in `train` when steps > 0, or alone with `recollect sft`."""

    steps: int = 0  # updates; 0: none in `train`, trainer.total_epochs over the files in `recollect sft`
    batch_size: int = 64  # sequences per update
    data: str = "expert"  # expert or sloppy (of made-up tasks), skill (the base's teacher), files or a run/jsonl
    min_reward: float = 0.0  # with stored trajectories: train on those that reached this reward (also: min_reward)
    max_length: int = 0  # tokens of the longest sequence; 0: the model's window
    overlong: str = "cut"  # a longer conversation: cut (its end), drop or error
    test_freq: int = -1  # updates between measurements on held-out conversations; -1: only before and after
    workers: int = 0  # processes that prepare batches
    log_freq: int = 0  # updates between rows of metrics; 0: about twenty rows, at least one every 50 updates
    save_freq: int = 500  # updates between checkpoints; -1: only at the end
    export_dtype: str = "float32"  # type of the final `model` folder of `recollect sft`: float32 or bfloat16
    optim: Optim = field(default_factory=lambda: Optim(lr=1e-3, lr_warmup_steps=20, lr_scheduler_type="cosine"))


@dataclass
class Evaluation:
    """The final evaluation and report."""

    lengths: list[int] = field(default_factory=lambda: [1, 4, 16, 64, 256])  # multiples of the training length
    tasks: list[int] = field(default_factory=lambda: [256, 128, 64, 32, 16])  # held-out documents at each length
    first: int = 0  # the first made-up held-out task; tasks far from it are fresh, no setting was chosen by them


@dataclass
class Trainer:
    """The run."""

    project_name: str = "recollect"  # first part of the run directory
    experiment_name: str = "default"  # second part of the run directory
    default_local_dir: str = ""  # the run directory; default runs/<project_name>/<experiment_name>
    total_training_steps: int | None = None  # RL steps; 0: none; default: total_epochs over the data
    total_epochs: int = 1  # passes over the data when total_training_steps is not given
    logger: list[str] = field(default_factory=lambda: ["console"])  # and tensorboard, wandb, swanlab, mlflow, trackio
    nnodes: int = 1  # machines; only 1 here
    n_gpus_per_node: int = 1  # GPUs; only 1 here (0 or 1 on a CPU)
    critic_warmup: int = 0  # first steps in which only the critic learns
    save_freq: int = 10  # steps between checkpoints; 0: only at the end; -1: none at all, and nothing to go on from
    test_freq: int = 0  # steps between validations; 0: only before and after; -1: none in training or after it
    val_before_train: bool = True  # measure held-out success before training
    val_only: bool = False  # only measure held-out success
    best_metric: str | None = None  # keep the checkpoint with the largest value of this metric, as `best`
    patience: int = 0  # stop after so many validations without a better best_metric; 0: never
    max_ckpt_to_keep: int | None = 3  # older checkpoints are deleted; null: none is
    resume_mode: str = "auto"  # auto (from the newest checkpoint), disable (anew; old runs move away) or resume_path
    resume_from_path: str | None = None  # with resume_path: the checkpoint to go on from
    default_hdfs_dir: str | None = None  # remote copy of checkpoints; only null here
    seed: int = 0  # of everything
    device: str = "auto"  # auto, cpu or cuda
    threads: int = 0  # CPU threads; 0: chosen from the model's size
