"""The run directory: configuration, metrics, trajectories, checkpoints, report. Append-only and crash-safe."""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import zstandard

from recollect.config import Config
from recollect.config.compose import differing, to_yaml
from recollect.config.prompt_file import kept_prompts, prompts_text
from recollect.data.questions import stored_questions
from recollect.files.half_characters import made_whole, says_half
from recollect.files.locks import NAME as LOCK
from recollect.files.locks import Lock, lock_folder, refuse_locked
from recollect.files.output import refuse_unwritable, write_atomic, writing
from recollect.files.reading import BLOCK, lines, parse_json, read_json, read_text
from recollect.files.yaml import read_yaml
from recollect.registries import ESTIMATORS
from recollect.trajectories.codec import Row, encode
from recollect.trajectories.stored_images import write_images
from recollect.trajectories.stored_rows import read_trajectories
from recollect.types import BadInput, Group

FSDP = "actor_rollout_ref.actor", "critic"
MAY_CHANGE = (  # keys that do not change what a run computes
    "trainer.resume_mode",
    "trainer.resume_from_path",
    "trainer.logger",
    "trainer.val_only",
    "trainer.default_local_dir",
    "trainer.save_freq",
    "trainer.max_ckpt_to_keep",
    *("trainer.nnodes", "trainer.n_gpus_per_node", "trainer.gpus", "trainer.node_wait_s"),
    "actor_rollout_ref.nccl_timeout",
    *(f"{place}.fsdp_config.{name}" for place in FSDP for name in ("fsdp_size", "reshard_after_forward")),
    *(f"actor_rollout_ref.rollout.fixed_model_{name}" for name in ("api", "key_env", "timeout_s", "retries")),
    *(f"actor_rollout_ref.rollout.fixed_model_{name}" for name in ("concurrency", "wait_s")),
    *(
        f"actor_rollout_ref.rollout.server_{name}"
        for name in ("addresses", "python", "storage", "start_s", "timeout_s")
    ),
    *(
        f"actor_rollout_ref.rollout.{name}"
        for name in ("server_wait_s", "weight_sync", "num_servers", "gpus", "nnodes", "n_gpus_per_node")
    ),
)


class RunDirectory:
    """One run directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock: Lock | None = None  # held while this process writes to it

    @staticmethod
    def of(cfg: Config) -> RunDirectory:
        """The run directory of a configuration."""
        trainer = cfg.trainer
        default = Path("runs") / trainer.project_name / trainer.experiment_name
        return RunDirectory(Path(trainer.default_local_dir).expanduser() if trainer.default_local_dir else default)

    @staticmethod
    def usable(cfg: Config) -> RunDirectory:
        """The run directory, not made yet. One that is no run, or a run of another configuration, is refused.

        With trainer.resume_mode=disable any run may be in it, because it will move aside.
        """
        run = RunDirectory.of(cfg)
        config = run.path / "config.yaml"
        run.refuse_no_folder()
        refuse_locked(run.path, f"the run directory {run.path}")
        used = run.path.is_dir() and any(p.suffix != ".tmp" and p.name != LOCK for p in run.path.iterdir())
        if used and not config.is_file():
            raise BadInput(f"{run.path} is not empty and not a run of recollect; set trainer.default_local_dir")
        if run.moves_aside(cfg):
            _refuse_needed(cfg, run.path)
        elif config.is_file():
            optims = [cfg.actor_rollout_ref.actor.optim]
            optims += [cfg.critic.optim] if ESTIMATORS.knows(cfg.algorithm.adv_estimator, "needs_critic") else []
            longer = all(o.lr_scheduler_type == "constant" and not o.lr_warmup_steps_ratio for o in optims)
            more = ("trainer.total_training_steps",) if longer else ()  # elsewhere it would bend the schedule
            other = differing(read_yaml(config, "configuration"), cfg, MAY_CHANGE + more, str(config))
            hint = "name another with trainer.experiment_name=… or trainer.default_local_dir=…"
            if other:
                raise BadInput(f"{run.path} holds a run of another configuration ({other}); {hint}")
            run.refuse_other_prompts(cfg, hint)
        refuse_unwritable(run.path, f"the run directory {run.path}")
        return run

    def refuse_other_prompts(self, cfg: Config, hint: str) -> None:
        """Refuse to go on with prompts that are not those that the run began with."""
        file = cfg.agent.prompts
        kept = self.path / kept_prompts(file) if file else None
        if file and kept and kept.is_file() and read_text(kept) != prompts_text(file):
            raise BadInput(f"agent.prompts={file} has changed since {self.path} began with it; {hint}")

    def moves_aside(self, cfg: Config) -> bool:
        """Whether trainer.resume_mode=disable will move a run out of the directory."""
        return cfg.trainer.resume_mode == "disable" and (self.path / "config.yaml").is_file()

    def aside(self) -> Path:
        """The first free name beside the directory for a run that is moved aside."""
        path = self.path.absolute()
        names = (path.with_name(f"{path.name}.old-{number}") for number in itertools.count(1))
        return next(name for name in names if not name.exists())

    @staticmethod
    def claim(cfg: Config) -> RunDirectory:
        """The run directory, locked for this process. Nothing is written yet."""
        run = RunDirectory.of(cfg)
        run.refuse_no_folder()
        refuse_unwritable(run.path, f"the run directory {run.path}")
        run.lock = lock_folder(run.path, f"the run directory {run.path}")
        return run

    @staticmethod
    def start(cfg: Config, say: Callable[[str], None] = lambda text: None) -> RunDirectory:
        """Claim the run directory and open it for writing."""
        run = RunDirectory.claim(cfg)
        try:
            run.open(cfg, say)
        except BaseException:
            run.release()
            raise
        return run

    def open(self, cfg: Config, say: Callable[[str], None] = lambda text: None) -> None:
        """Make the claimed directory a run's; move an earlier run aside if needed."""
        RunDirectory.usable(cfg)
        if self.moves_aside(cfg):
            self._move_aside(say)
        write_atomic(self.path / "config.yaml", to_yaml(cfg))
        if cfg.agent.prompts:
            write_atomic(self.path / kept_prompts(cfg.agent.prompts), prompts_text(cfg.agent.prompts))
        for name in ("trajectories", "checkpoints", "plots"):
            (self.path / name).mkdir(exist_ok=True)

    def _move_aside(self, say: Callable[[str], None]) -> None:
        place = self.aside()
        try:
            self.path.rename(place)
        except OSError as error:
            raise BadInput(f"{self.path} cannot be moved aside to start anew: {error.strerror}") from None
        if self.lock is not None:
            self.lock.follow(place)
        moved, self.lock = self.lock, lock_folder(self.path, f"the run directory {self.path}")
        if moved is not None:
            moved.release()
        say(f"trainer.resume_mode=disable: the run that was in {self.path} is now {place}")

    def refuse_no_folder(self) -> None:
        """Refuse a run directory that is not a folder."""
        if self.path.exists() and not self.path.is_dir():
            raise BadInput(f"the run directory {self.path} is a file")
        if self.path.is_symlink() and not self.path.exists():
            raise BadInput(f"the run directory {self.path} is a link to a folder that is not there")

    def release(self) -> None:
        """Let other processes write to it."""
        if self.lock is not None:
            self.lock.release()

    @property
    def metrics_path(self) -> Path:
        return self.path / "metrics.jsonl"

    def log(self, row: dict[str, Any], path: Path | None = None) -> None:
        """Append one row of metrics, to ``metrics.jsonl`` or another file."""
        place = path or self.metrics_path
        with writing(place), place.open("a") as file:
            file.write(dump(row) + "\n")

    def metrics_size(self) -> int:
        """Bytes of metrics so far."""
        return self.metrics_path.stat().st_size if self.metrics_path.exists() else 0

    def truncate_metrics(self, size: int, warn: Callable[[str], None]) -> None:
        """Drop the rows written after a checkpoint, which a resumed run writes again; warn if earlier ones are lost."""
        found = self.metrics_size()
        if found:
            os.truncate(self.metrics_path, min(size, found))
            kept = _cut_to_line(self.metrics_path)
        else:
            kept = 0
        if kept < size:
            warn(
                f"{self.metrics_path} has lost rows: {kept:,} of the {size:,} bytes that the checkpoint knows are "
                "there; the run goes on, and its report and plots lack them"
            )

    def metrics(self) -> list[dict[str, Any]]:
        """All complete rows of metrics."""
        if not self.metrics_path.exists():
            return []
        rows: list[dict[str, Any]] = []
        for line in lines(self.metrics_path):
            try:
                row = parse_json(line, str(self.metrics_path), len(rows) + 1)
            except BadInput:  # the last line of a killed run may be cut
                if line.endswith(b"\n"):
                    raise
                break
            rows.append(row)
        return rows

    def save_trajectories(self, name: str, groups: Sequence[Group]) -> None:
        """Write trajectories under a name (training: ``step-N``), replacing those of an earlier try."""
        write_images(self.path / "trajectories", groups)
        lines = "".join(dump(row) + "\n" for row in rows_of(groups))
        data = zstandard.ZstdCompressor(level=3).compress(lines.encode())
        write_atomic(self.path / "trajectories" / f"{name}.jsonl.zst", data)

    def trajectories(self) -> Iterator[Row]:
        """All stored training trajectories, step by step, without those of evaluations."""
        for path in sorted((self.path / "trajectories").glob("step-*.jsonl.zst")):
            yield from read_trajectories(path)

    def write_json(self, name: str, value: Any) -> None:
        """Write a JSON file of the run."""
        write_atomic(self.path / name, dump(value, indent=2) + "\n")

    def read_json(self, name: str) -> Any:
        """Read a JSON file of the run, None if there is none."""
        path = self.path / name
        return read_json(path) if path.is_file() else None


def _cut_to_line(path: Path) -> int:
    """Drop what follows the last line feed of a file; the bytes that are left."""
    with path.open("rb+") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - BLOCK)
            file.seek(start)
            if (at := file.read(end - start).rfind(b"\n")) >= 0:
                end = start + at + 1
                break
            end = start
        file.truncate(end)
    return end


def _refuse_needed(cfg: Config, folder: Path) -> None:
    """Refuse to move aside a run that this one reads from."""
    data, bound = cfg.data, [text.partition(":")[2] for text in cfg.roles.values()]
    needed = [cfg.actor_rollout_ref.model.path, cfg.critic.model.path, *bound]
    for name in [*needed, *data.train_files, *data.val_files, *data.offline_files]:
        if name and folder.resolve() in (Path(name).expanduser().resolve(), *Path(name).expanduser().resolve().parents):
            raise BadInput(
                f"trainer.resume_mode=disable moves the run in {folder} aside, and this run needs {name} from it; name "
                "another directory with trainer.experiment_name=…"
            )


def dump(value: Any, indent: int | None = None) -> str:
    """JSON that every program can read: numbers that are not finite become null, half characters question marks."""

    def finite(x: Any) -> Any:
        if isinstance(x, float):
            return x if math.isfinite(x) else None
        if isinstance(x, dict):
            return {k: finite(v) for k, v in x.items()}
        return [finite(v) for v in x] if isinstance(x, list | tuple) else x

    try:
        text = json.dumps(value, indent=indent, allow_nan=False)
    except ValueError:
        text = json.dumps(value := finite(value), indent=indent, allow_nan=False)
    return json.dumps(made_whole(value), indent=indent) if says_half(text, value) else text


def rows_of(groups: Sequence[Group], exact: bool = False) -> Iterator[Row]:
    """The rows that a run stores of some groups; ``exact`` leaves log-probabilities as they are."""
    for group in groups:
        asked = stored_questions(group.task) if any(t.answers for t in group.trajectories) else []
        for trajectory in group.trajectories:
            yield encode(group.task, trajectory, asked, exact)


def remove_tree(path: Path) -> None:
    """Rename a folder, then delete it, so that a kill cannot leave half of it under its name."""
    doomed = path.with_name(f".{path.name}.deleted")
    shutil.rmtree(doomed, ignore_errors=True)
    if path.exists():
        path.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)


def replace_tree(temporary: Path, final: Path) -> None:
    """Put a folder that was written beside its place into it, synced, so that it is never half there."""
    for path in temporary.rglob("*"):
        sync_to_disk(path)
    sync_to_disk(temporary)
    remove_tree(final)
    os.replace(temporary, final)
    sync_to_disk(final.parent)


def sync_to_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
