"""Fifty training steps on one GPU: memory after the fifth and at the end.

python benchmarks/gpu/memory.py
python benchmarks/gpu/memory.py --device cpu
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
from device import parse
from synthetic import make_folder, write_tasks

from recollect.config.compose import compose
from recollect.runtime.console import Console
from recollect.training.train_run import TrainRun

CPU = [  # the embedded recipe in small
    "trainer.device=cpu",
    "data.train_batch_size=4",
    "actor_rollout_ref.actor.ppo_mini_batch_size=4",
    "trainer.save_freq=0",
    "trainer.val_before_train=False",
]


def show(rows: list[dict[str, float]], key: str) -> None:
    """Print a column of the steps."""
    values = [row[key] for row in rows]
    print(f"{key}: step 5 {values[4]:.0f}, at most {max(values[4:]):.0f} from then on; all of them:")
    print(" ".join(f"{value:.0f}" for value in values))


def on_cpu(steps: int) -> None:
    """The same for the embedded model, whose memory is this process's."""
    with tempfile.TemporaryDirectory() as folder:
        settings = [*CPU, f"trainer.total_training_steps={steps}", f"trainer.default_local_dir={folder}/run"]
        work = TrainRun(compose("needle", settings), Console(quiet=True))
        work.policy.sync(0)
        rows = [work.rl.step() for _ in range(steps)]
    show(rows, "memory/resident_mb")
    print(f"CPU, {len(rows)} steps of the recipe needle with 4 tasks, {rows[-1]['time/total']:.2f} s the last")


def main() -> None:
    """A run of short documents; the most memory that was in use, and held, by then."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="0.5B", help="of the model on a GPU; a CPU has the embedded one")
    parser.add_argument("--steps", type=int, default=50, help="at least 5")
    args = parse(parser)
    if args.device == "cpu":
        on_cpu(args.steps)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_folder(args.shape, folder / "model")
        write_tasks(folder / "tasks.jsonl", 64, 1500)
        limits = {"chunk_size": 500, "max_memorization_length": 64, "max_final_response_length": 64}
        settings = [
            f"actor_rollout_ref.model.path={folder / 'model'}",
            f"data.train_files=[{folder / 'tasks.jsonl'}]",
            "data.train_batch_size=4",
            "actor_rollout_ref.actor.ppo_mini_batch_size=4",
            "actor_rollout_ref.rollout.n=8",
            f"agent.reward_name={Path(__file__).with_name('synthetic.py')}:luck",
            f"trainer.total_training_steps={args.steps}",
            "trainer.save_freq=0",
            "trainer.val_before_train=False",
            f"trainer.default_local_dir={folder / 'run'}",
            *(f"recurrent.memory.config.{key}={value}" for key, value in limits.items()),
        ]
        work = TrainRun(compose(None, [*settings, "agent.agent_type=recurrent"]), Console(quiet=True))
        work.policy.sync(0)
        rows, held = [], []
        for _ in range(args.steps):
            rows.append(work.rl.step())
            held.append(torch.cuda.memory_allocated() / 2**20)
            if len(rows) % 10 == 0:
                print(f"step {len(rows)} of {args.steps}: {rows[-1]['memory/gpu_mb']:.0f} MiB at most", flush=True)
    print(f"held between steps, MiB: {held[4]:.0f} after step 5, {held[-1]:.0f} after step {len(rows)}")
    late = rows[-1]
    for key in ("memory/gpu_mb", "memory/resident_mb"):
        show(rows, key)
    print(f"{torch.cuda.get_device_name()}, {args.shape}, {len(rows)} steps, {late['time/total']:.2f} s the last")


if __name__ == "__main__":
    main()
